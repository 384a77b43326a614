// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/store/group/given_up.h"

#include <exception>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "plugin/job/environment/node_id.h"

namespace chainmail::internal {
namespace {

/// Notices of this process's ranks, by what their keys in the store begin with.
struct LeftNotices {
  std::mutex mutex;
  std::map<std::string, std::vector<std::string>> keys;
};

LeftNotices& left_notices() {
  static auto& notices = *new LeftNotices();
  return notices;
}

}  // namespace

std::string GivenUp::key(int from, int to) const {
  return keys_ + std::to_string(from) + "/" + std::to_string(to);
}

void GivenUp::withdraw() {
  std::vector<std::string> keys;
  {
    LeftNotices& left = left_notices();
    const std::lock_guard lock(left.mutex);
    const auto place = left.keys.find(store_.full_key(key(rank_, 0)));
    if (place == left.keys.end()) return;
    keys = std::move(place->second);
    left.keys.erase(place);
  }
  for (const std::string& left : keys) store_.remove(left);
}

void GivenUp::leave(int to, const std::string& how) {
  store_.set(key(rank_, to), how);
  LeftNotices& left = left_notices();
  const std::lock_guard lock(left.mutex);
  left.keys[store_.full_key(key(rank_, 0))].push_back(key(rank_, to));
}

void GivenUp::note_failure() {
  LeftNotices& left = left_notices();
  const std::lock_guard lock(left.mutex);
  left.keys[store_.full_key(key(rank_, 0))].push_back(key(0, rank_));
}

std::optional<std::string> GivenUp::take(int from) {
  auto how = store_.try_get(key(from, rank_));
  if (how) store_.remove(key(from, rank_));
  return how;
}

void GivenUp::look(int awaited) {
  // Who waits for rank 0 asks about it alone, who waits for all about the last one, too.
  const bool is_once_for_all = awaited == 0 || awaited == size_ - 1;
  if (!is_once_for_all || store_.is_silent()) return;
  if (rank_ != 0) {
    if (const auto how = take(0)) throw GaveUp(0, *how);
    return;
  }
  if (!store_.try_get(some_key())) return;
  store_.remove(some_key());
  for (int other = 1; other < size_; ++other) {
    // tell_absent_ranks() deletes it, with those of others.
    if (const auto how = store_.try_get(key(other, rank_))) throw GaveUp(other, *how);
  }
}

void GivenUp::tell_first_rank(const std::string& how) {
  leave(0, how);
  store_.set(some_key(), "1");
}

std::string how_it_gave_up(const Deadline& deadline) {
  const std::string who = "on " + host_name() + " gave up";
  try {
    throw;
  } catch (const TimeoutError&) {
    return who + " after " + std::to_string(deadline.limit().count()) + " ms of waiting";
  } catch (const std::exception& error) {
    return who + " (" + error.what() + ")";
  }
}

}  // namespace chainmail::internal
