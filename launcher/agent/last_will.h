// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// When an elastic job is ended, or its launcher is gone, its ranks could save what they have. The
// agent tells them, hears which step each has committed, and has the one with the newest write it;
// then all is over. Other agents do the same at the same time, and know nothing of each other.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/job/job_protocol.h"
#include "launcher/agent/local_ranks.h"
#include "launcher/channel/wire.h"

namespace chainmail::launch {

class LastWill {
 public:
  /// `step`: the one that is on disk, where `how` is kSaved.
  using OnDone = std::function<void(WillEnd how, std::uint64_t step)>;

  /// `grace`: for all of it; a rank that has not answered in half of that is not waited for.
  /// `reason`: empty where the launcher is gone. `welcomed`: the ranks that may have a state.
  /// `on_done`: once; nothing is called afterwards.
  LastWill(asio::io_context& io, LocalRanks& ranks, std::chrono::milliseconds grace,
           const std::string& reason, std::set<std::uint32_t> welcomed, OnDone on_done);

  /// What a rank sends, frame or piece of one.
  void on_bytes(std::uint32_t rank, std::string_view bytes);
  /// Ranks may have ended.
  void look();
  [[nodiscard]] bool is_done() const noexcept { return !on_done_; }

 private:
  void take(std::uint32_t rank, const internal::WillBody& will);
  void choose_writer();
  [[nodiscard]] bool may_have_state(std::uint32_t rank) const;
  void tell(std::uint32_t rank, internal::JobMessage message);
  void finish(WillEnd how, std::uint64_t step = 0);

  LocalRanks& ranks_;
  const std::set<std::uint32_t> welcomed_;
  asio::steady_timer patience_;
  asio::steady_timer end_;
  OnDone on_done_;
  std::map<std::uint32_t, std::string> heard_;  ///< of each rank, what is not understood yet
  std::map<std::uint32_t, internal::WillBody> wills_;
  std::optional<std::uint32_t> writer_;
  bool is_late_ = false;     ///< whoever has not answered yet
  bool has_failed_ = false;  ///< a writer has ended without
};

}  // namespace chainmail::launch
