// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What libpmix has asked and the job has not answered yet.
//
// Thread-safe: libpmix's thread adds, the main thread takes.

#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/mpi/mpi_wire.h"

namespace chainmail::launch {

class PmixPending {
 public:
  /// Called with what came back.
  using Reply = std::function<void(MpiMessage)>;
  using Clock = std::chrono::steady_clock;

  /// The replies to fences of one group of ranks come in the order in which these were asked.
  void add_fence(const std::string& key, const std::vector<std::uint32_t>& ranks, Reply reply);
  [[nodiscard]] std::uint64_t add(Reply reply, std::optional<std::chrono::seconds> limit = {});

  /// Empty functions when nobody waits (any more).
  [[nodiscard]] Reply take_fence(const std::string& key, const std::vector<std::uint32_t>& ranks);
  [[nodiscard]] Reply take(std::uint64_t id);
  /// Requests whose time is over; taken.
  [[nodiscard]] std::vector<std::pair<std::uint64_t, Reply>> take_expired();
  [[nodiscard]] std::optional<std::chrono::milliseconds> next_limit() const;

 private:
  struct Request {
    Reply reply;
    std::optional<Clock::time_point> limit;
  };
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::vector<std::uint32_t>>, std::deque<Reply>> fences_;
  std::map<std::uint64_t, Request> requests_;
  std::uint64_t last_id_ = 0;
};

}  // namespace chainmail::launch
