// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Hosts that are out of reach at the start of a job, and are tried again until a time limit: each
// at most every ten seconds, fewer at a time where there are many. Who is waited for is said once,
// and again when it changes.
//
// One thread, the io_context's.

#pragma once

#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "launcher/controller/state/job_state.h"

namespace chainmail::launch {

class HostPatience {
 public:
  struct Callbacks {
    /// One more try is due.
    std::function<void(std::uint32_t node)> start;
    /// No time is left; `why` of each host that is still waited for.
    std::function<void(const std::map<std::uint32_t, std::string>& why)> on_over;
    /// Who is waited for has changed; empty: nobody any more.
    std::function<void(const std::string& words)> on_change;
  };

  HostPatience(JobState& job, Callbacks callbacks);

  /// The time begins; none where the job is not to wait.
  void begin();
  /// A try has failed. False when no time is left.
  [[nodiscard]] bool keep_trying(std::uint32_t node, std::string why);
  void on_up(std::uint32_t node);
  /// From here on nobody is waited for.
  void stop();

 private:
  struct Waiting {
    std::string why;
    int tries = 0;
  };

  void start_later(std::uint32_t node);
  void tell_soon();
  void tell();
  [[nodiscard]] std::string words() const;
  void wait_for_end();

  JobState& job_;
  Callbacks callbacks_;
  const std::chrono::milliseconds limit_;
  std::chrono::steady_clock::time_point end_;
  std::map<std::uint32_t, Waiting> waiting_;
  std::set<std::uint32_t> told_;
  asio::steady_timer end_timer_;
  asio::steady_timer tell_timer_;
  std::chrono::seconds tell_pause_{1};
  bool is_about_to_tell_ = false;
  bool is_over_ = true;
};

}  // namespace chainmail::launch
