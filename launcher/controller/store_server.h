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

#include "base/job_protocol.h"

namespace chainmail::launch {

class StoreServer {
 public:
  using Send = std::function<void(std::uint32_t rank, internal::JobMessage, std::string body)>;

  explicit StoreServer(Send send) : send_(std::move(send)) {}

  static bool handles(internal::JobMessage type) noexcept;
  /// One request of a rank. Throws SystemError(EPROTO) for a body that cannot be read.
  void handle(std::uint32_t rank, const internal::Frame& request);
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
  void get(std::uint32_t rank, internal::BodyReader& body);
  void add(std::uint32_t rank, internal::BodyReader& body);
  void compare_set(std::uint32_t rank, internal::BodyReader& body);

  Send send_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::vector<Waiter>> waiters_;
};

}  // namespace chainmail::launch
