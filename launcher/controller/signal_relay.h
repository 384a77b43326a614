// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Signals to the launcher and to its agents. Those that end programs end the job; those that
// announce something (launcher/process/signals.h) go on to every rank, once, however many processes
// of the job a scheduler has sent them to.
//
// One thread, the io_context's.

#pragma once

#include <signal.h>

#include <asio/signal_set.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "launcher/controller/shutdown.h"
#include "launcher/controller/state/job_state.h"
#include "launcher/process/signals.h"

namespace chainmail::launch {

class SignalRelay {
 public:
  /// `ignored`: by the launcher's caller, so by the job. `takes_leave`: SIGTERM has come to the
  /// agent of a node; true where that concerns its host alone.
  SignalRelay(JobState& job, Shutdown& shutdown, std::vector<int> ignored,
              std::function<bool(std::uint32_t node)> takes_leave = {});

  /// From here on this process gets them.
  void start();
  /// From here on Ctrl-C ends this process, and signals that are passed on do nothing.
  void stop();
  /// There are ranks that signals can reach.
  void on_started() noexcept;
  /// A kSignalled frame. Throws SystemError(EPROTO).
  void on_frame(std::uint32_t node, const internal::Frame& frame);
  const std::vector<int>& ignored() const noexcept { return ignored_; }

 private:
  void wait();
  bool ignores(int number) const;
  void spread(int number, std::optional<std::uint32_t> origin, bool has_passed_it);

  JobState& job_;
  Shutdown& shutdown_;
  std::vector<int> ignored_;
  std::function<bool(std::uint32_t node)> takes_leave_;
  asio::signal_set signals_;
  sigset_t mask_before_{};
  // Passed on: those that came to this process, and those that came to an agent.
  RecentSignals own_;
  RecentSignals agents_;
  bool has_ranks_ = false;
};

}  // namespace chainmail::launch
