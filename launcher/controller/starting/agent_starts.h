// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Brings an agent up on every host: through the remote shell, or through the host that carries it;
// again where a login may pass later, from here where a host cannot reach the other; for a longer
// time where the job is to wait for hosts; and says why where none comes.
//
// One thread, the io_context's.

#pragma once

#include <asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/controller/starting/host_patience.h"
#include "launcher/controller/state/job_state.h"
#include "launcher/process/child_process.h"
#include "launcher/remote/agent_image.h"
#include "launcher/remote/start_failure.h"

namespace chainmail::launch {

class AgentStarts {
 public:
  struct Callbacks {
    std::function<void()> on_hello;
    std::function<void(std::uint32_t node, const internal::Frame& frame)> on_frame;
    /// The agent is out of reach, before its hello or after.
    std::function<void(std::uint32_t node, const std::string& reason)> on_lost;
    /// The job cannot start.
    std::function<void(const std::string& cause)> fail;
    /// What starts this agent cannot be run here; without it, that fails the job.
    std::function<void(std::uint32_t node, const std::string& cause)> on_not_run = {};
    /// Which hosts are waited for, in words; empty: none any more.
    std::function<void(const std::string& words)> on_waiting = {};
  };

  AgentStarts(JobState& job, std::string launcher_path, Callbacks callbacks);

  /// Throws UsageError before the first one is started.
  void start();
  /// The agent of a node that was added to the job's. Throws UsageError and SystemError where no
  /// command for it can be had.
  void start_added(std::uint32_t node);
  /// From here on none is started.
  void stop();
  /// An agent was lost before its hello. True when another try is under way.
  bool try_again(std::uint32_t node);
  /// The same of one that was up, while others are not, and nothing was begun on its host.
  bool try_again_lost(std::uint32_t node, const std::string& reason);
  /// No try is left: says why, with what else fails within a second.
  void give_up(std::uint32_t node);
  /// Why the last try has failed, and what to do about it.
  [[nodiscard]] std::string explain_failure(std::uint32_t node) const;
  /// Nodes for which no try was left.
  [[nodiscard]] std::vector<std::uint32_t> failed() const;
  /// Some of them are out of reach, and may come back.
  [[nodiscard]] bool may_pass() const noexcept { return may_pass_; }

 private:
  void start_from(std::uint32_t node);
  void plan_start(std::uint32_t node);
  void start_one(std::uint32_t node);
  void on_hello(std::uint32_t node, const AgentHello& hello);
  bool start_later(std::uint32_t node);
  bool start_from_here(std::uint32_t node);
  bool keep_trying(std::uint32_t node);
  void take_children(std::uint32_t node);
  void give_up_waiting(const std::map<std::uint32_t, std::string>& why);
  [[nodiscard]] StartFailure failure_of(std::uint32_t node) const;
  void tell_not_run(const std::string& host, std::string note);
  [[nodiscard]] bool is_any_awaited() const;
  void report();

  JobState& job_;
  Agents& agents_;
  std::string launcher_path_;
  std::optional<AgentImage> image_;
  Callbacks callbacks_;
  asio::steady_timer report_timer_;
  HostPatience patience_;
  std::map<std::uint32_t, std::string> failures_;  // of hosts given up, each explained
  bool may_pass_ = false;
  bool is_over_ = false;
  bool has_told_detour_ = false;
  bool has_told_not_run_ = false;
};

}  // namespace chainmail::launch
