// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The key-value store that the ranks of a job meet in, with the semantics of c10d::Store.
//
// One thread. Pure but for the reply function.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/job/job_protocol.h"

namespace chainmail::launch {

/// A rank wants the store to hold more than it does. What was stored stays.
class StoreFull : public SystemError {
 public:
  explicit StoreFull(const std::string& message);
};

class StoreServer {
 public:
  using Send = std::function<void(std::uint32_t rank, internal::JobMessage, std::string body)>;

  /// Holds `limit` bytes in all.
  explicit StoreServer(Send send, std::size_t limit = std::size_t{256} << 20)
      : send_(std::move(send)), limit_(limit) {}

  static bool handles(internal::JobMessage type) noexcept;
  /// One request of a rank. Throws SystemError(EPROTO) for a body that cannot be read, StoreFull.
  void handle(std::uint32_t rank, const internal::Frame& request);
  /// Adds to what `key` holds, in the launcher's own name. Throws StoreFull.
  void append(const std::string& key, std::string_view value);
  /// Drops the keys that begin so; who waits for one waits on.
  void erase_all(const std::string& prefix);
  /// The rank is gone: forget what it waits for.
  void forget(std::uint32_t rank);

  /// Status of a kReply.
  static constexpr std::uint8_t kMissing = 0;
  static constexpr std::uint8_t kOk = 1;
  static constexpr std::uint8_t kRefused = 2;  ///< the value says why

 private:
  struct Waiter {
    std::uint32_t rank;
    std::uint32_t id;
  };

  void reply(std::uint32_t rank, std::uint32_t id, std::uint8_t status, std::string_view value);
  void set(const std::string& key, std::string value);
  void take_room(std::size_t bytes, std::size_t freed, const std::string& key);
  bool erase(const std::string& key);
  void get(std::uint32_t rank, internal::BodyReader& body);
  void add(std::uint32_t rank, internal::BodyReader& body);
  void compare_set(std::uint32_t rank, internal::BodyReader& body);

  Send send_;
  std::size_t limit_;
  std::size_t bytes_ = 0;  ///< of keys, values and what ranks wait for, with what each takes
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<Waiter>> waiters_;
};

}  // namespace chainmail::launch
