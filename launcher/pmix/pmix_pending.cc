// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/pmix/pmix_pending.h"

#include <algorithm>

namespace chainmail::launch {

void PmixPending::add_fence(const std::string& key, const std::vector<std::uint32_t>& ranks,
                            Reply reply) {
  const std::lock_guard lock(mutex_);
  fences_[{key, ranks}].push_back(std::move(reply));
}

std::uint64_t PmixPending::add(Reply reply, std::optional<std::chrono::seconds> limit) {
  const std::lock_guard lock(mutex_);
  Request request{std::move(reply), std::nullopt};
  if (limit) request.limit = Clock::now() + *limit;
  requests_[++last_id_] = std::move(request);
  return last_id_;
}

PmixPending::Reply PmixPending::take_fence(const std::string& key,
                                           const std::vector<std::uint32_t>& ranks) {
  const std::lock_guard lock(mutex_);
  const auto found = fences_.find({key, ranks});
  if (found == fences_.end()) return {};
  Reply reply = std::move(found->second.front());
  found->second.pop_front();
  if (found->second.empty()) fences_.erase(found);
  return reply;
}

PmixPending::Reply PmixPending::take(std::uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(id);
  if (found == requests_.end()) return {};
  Reply reply = std::move(found->second.reply);
  requests_.erase(found);
  return reply;
}

std::vector<std::pair<std::uint64_t, PmixPending::Reply>> PmixPending::take_expired() {
  const std::lock_guard lock(mutex_);
  std::vector<std::pair<std::uint64_t, Reply>> expired;
  const auto now = Clock::now();
  for (auto at = requests_.begin(); at != requests_.end();) {
    const bool is_over = at->second.limit && *at->second.limit <= now;
    if (is_over) expired.emplace_back(at->first, std::move(at->second.reply));
    at = is_over ? requests_.erase(at) : std::next(at);
  }
  return expired;
}

std::optional<std::chrono::milliseconds> PmixPending::next_limit() const {
  const std::lock_guard lock(mutex_);
  std::optional<Clock::time_point> first;
  for (const auto& [id, request] : requests_) {
    if (request.limit && (!first || *request.limit < *first)) first = request.limit;
  }
  if (!first) return std::nullopt;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*first - Clock::now());
  return std::max(left, std::chrono::milliseconds(0));
}

}  // namespace chainmail::launch
