// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/ranks/store_server.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::JobMessage;

// What fits into the reply that carries it.
constexpr std::size_t kMaxValueBytes = internal::kMaxFrameBytes - 64;

// What an entry costs beside its texts, roughly.
constexpr std::size_t kEntryBytes = 64;

// What a rank costs that waits for `key`.
std::size_t waiter_bytes(const std::string& key) { return kEntryBytes + key.size(); }
std::size_t value_bytes(const std::string& key, const std::string& value) {
  return kEntryBytes + key.size() + value.size();
}

void check_length(const std::string& key, std::size_t bytes) {
  if (bytes <= kMaxValueBytes) return;
  throw StoreFull("the value of the store's key '" + key.substr(0, 100) + "' has " +
                  std::to_string(bytes) + " bytes; at most " + std::to_string(kMaxValueBytes) +
                  " are allowed");
}

}  // namespace

StoreFull::StoreFull(const std::string& message) : SystemError(message, ENOSPC) {}

bool StoreServer::handles(JobMessage type) noexcept {
  return type >= JobMessage::kStoreSet && type <= JobMessage::kStoreCount;
}

void StoreServer::handle(std::uint32_t rank, const internal::Frame& request) {
  BodyReader body(request.body);
  switch (request.type) {
    case JobMessage::kStoreSet: {
      const std::string key = body.text();
      return set(key, body.text());
    }
    case JobMessage::kStoreGet:
      return get(rank, body);
    case JobMessage::kStoreTryGet: {
      const std::uint32_t id = body.u32();
      const auto found = values_.find(body.text());
      if (found == values_.end()) return reply(rank, id, kMissing, "");
      return reply(rank, id, kOk, found->second);
    }
    case JobMessage::kStoreAdd:
      return add(rank, body);
    case JobMessage::kStoreCompareSet:
      return compare_set(rank, body);
    case JobMessage::kStoreAppend: {
      const std::string key = body.text();
      return append(key, body.text());
    }
    case JobMessage::kStoreDelete: {
      const std::uint32_t id = body.u32();
      return reply(rank, id, erase(body.text()) ? kOk : kMissing, "");
    }
    case JobMessage::kStoreCount:
      return reply(rank, body.u32(), kOk,
                   std::to_string(values_.size() - values_.count(internal::kEndedRanksKey)));
    default:
      throw SystemError("job protocol: not a request of the store", EPROTO);
  }
}

void StoreServer::append(const std::string& key, std::string_view value) {
  const auto old = values_.find(key);
  if (old == values_.end()) return set(key, std::string(value));
  // In place: a list of what many ranks say would be copied for each of them.
  check_length(key, old->second.size() + value.size());
  take_room(value.size(), 0, key);
  old->second.append(value);
}

void StoreServer::forget(std::uint32_t rank) {
  for (auto& [key, waiting] : waiters_) {
    const std::size_t gone =
        std::erase_if(waiting, [rank](const Waiter& waiter) { return waiter.rank == rank; });
    bytes_ -= gone * waiter_bytes(key);
  }
  std::erase_if(waiters_, [](const auto& entry) { return entry.second.empty(); });
}

void StoreServer::reply(std::uint32_t rank, std::uint32_t id, std::uint8_t status,
                        std::string_view value) {
  send_(rank, JobMessage::kReply, BodyWriter().u32(id).u8(status).text(value).take());
}

void StoreServer::set(const std::string& key, std::string value) {
  check_length(key, value.size());
  const auto old = values_.find(key);
  take_room(value_bytes(key, value), old == values_.end() ? 0 : value_bytes(key, old->second), key);
  const std::string& stored = values_[key] = std::move(value);
  auto waiting = waiters_.extract(key);
  if (waiting.empty()) return;
  bytes_ -= waiting.mapped().size() * waiter_bytes(key);
  for (const Waiter& waiter : waiting.mapped()) reply(waiter.rank, waiter.id, kOk, stored);
}

void StoreServer::take_room(std::size_t bytes, std::size_t freed, const std::string& key) {
  if (bytes_ - freed + bytes > limit_) {
    throw StoreFull("the launcher's store is full: with the key '" + key.substr(0, 100) +
                    "' it would hold " + std::to_string(bytes_ - freed + bytes) + " bytes in " +
                    std::to_string(values_.size()) + " keys, of at most " + std::to_string(limit_) +
                    "; the store is for meeting, send data by collectives and delete keys that "
                    "nobody needs any more");
  }
  bytes_ += bytes - freed;
}

bool StoreServer::erase(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  bytes_ -= value_bytes(key, found->second);
  values_.erase(found);
  return true;
}

void StoreServer::erase_all(const std::string& prefix) {
  const auto begin = values_.lower_bound(prefix);
  auto end = begin;
  for (; end != values_.end() && end->first.starts_with(prefix); ++end) {
    bytes_ -= value_bytes(end->first, end->second);
  }
  values_.erase(begin, end);
}

void StoreServer::get(std::uint32_t rank, BodyReader& body) {
  const std::uint32_t id = body.u32();
  const std::string key = body.text();
  const auto found = values_.find(key);
  if (found != values_.end()) return reply(rank, id, kOk, found->second);
  take_room(waiter_bytes(key), 0, key);
  waiters_[key].push_back({rank, id});
}

void StoreServer::add(std::uint32_t rank, BodyReader& body) {
  const std::uint32_t id = body.u32();
  const std::string key = body.text();
  const std::int64_t amount = body.i64();
  const auto found = values_.find(key);
  const auto number = whole_number<std::int64_t>(found == values_.end() ? "0" : found->second);
  if (!number) return reply(rank, id, kRefused, "the value of '" + key + "' is not a number");
  std::int64_t sum = 0;
  if (__builtin_add_overflow(*number, amount, &sum)) {
    return reply(rank, id, kRefused, "the value of '" + key + "' would overflow 64 bits");
  }
  const std::string text = std::to_string(sum);
  set(key, text);
  reply(rank, id, kOk, text);
}

void StoreServer::compare_set(std::uint32_t rank, BodyReader& body) {
  const std::uint32_t id = body.u32();
  const std::string key = body.text();
  const std::string expected = body.text();
  const std::string desired = body.text();
  const auto found = values_.find(key);
  // As c10d::Store has it: a key that does not exist is set when nothing is expected of it, and
  // otherwise the expectation is handed back.
  const bool matches = found == values_.end() ? expected.empty() : found->second == expected;
  if (matches) {
    set(key, desired);
    return reply(rank, id, kOk, desired);
  }
  reply(rank, id, kOk, found == values_.end() ? expected : found->second);
}

}  // namespace chainmail::launch
