// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a job ends: news first, then SIGTERM, then SIGKILL, then the agents; an elastic job that is
// ended by its user saves its state before. Each step has its time limit, and as soon as all ranks
// are gone the rest is skipped. Whoever sees a reason for an end tells it here; the first one
// counts.
//
// One thread, the io_context's.

#pragma once

#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "launcher/channel/wire.h"
#include "launcher/controller/ranks/rank_channel.h"
#include "launcher/controller/state/job_state.h"
#include "launcher/controller/state/root_cause.h"

namespace chainmail::launch {

class Shutdown {
 public:
  using Milliseconds = std::chrono::milliseconds;
  enum class Phase {
    kStarting,
    kRunning,
    kSaving,
    kNotifying,
    kTerminating,
    kKilling,
    kAbandoning,
    kOver
  };

  /// `stop_starts`: no agent is started from here on.
  Shutdown(JobState& job, RankChannel& channel, std::function<void()> stop_starts);

  Phase phase() const noexcept { return phase_; }
  [[nodiscard]] bool is_starting() const noexcept { return phase_ == Phase::kStarting; }
  [[nodiscard]] bool is_running() const noexcept { return phase_ == Phase::kRunning; }
  /// Agents are told to start ranks.
  void on_started();
  /// The job is ended when it has run for so long.
  void limit_time(Milliseconds left);

  /// A reason to end the job.
  void fail(Failure failure);
  /// Whom a rank blames.
  void blame(Blame blame);
  /// A signal to the launcher; a second one hurries the end.
  void interrupt(int signal_number);
  /// A signal that ends programs came to the agent of `node`; ignored where the job ends already.
  void interrupt_from(std::uint32_t node, int signal_number);
  /// Somebody has asked for the end by other means: as SIGTERM does, or `at_once`, by SIGKILL.
  void interrupt_for(const std::string& reason, bool at_once);
  /// No failure of anybody's; ranks get SIGTERM, and `grace` later SIGKILL. Nothing happens in a
  /// job that is ending already.
  void stop_for(const std::string& reason, int exit_code, Milliseconds grace, EndKind kind);

  /// What became of the last will of the ranks of `node`, which were asked for it; `step` is what
  /// they have saved.
  void on_will_made(std::uint32_t node, WillEnd how, std::uint64_t step);

  /// Of an elastic job, which goes on where ranks are gone: now it ends with them.
  void end_with_ranks();
  /// The same, with this exit code; they get SIGTERM when they have not ended after `grace`.
  void end(const std::string& cause, int exit_code, Milliseconds grace);

  /// A host is out of reach; ranks there may live on for the length of their lease.
  void on_host_lost(std::uint32_t node) { lost_nodes_.insert(node); }
  /// Ends the job when no rank is left.
  void on_ranks_gone();
  /// Processes that lead to agents have ended.
  void reap_agents();

  [[nodiscard]] const std::set<std::uint32_t>& lost_nodes() const noexcept { return lost_nodes_; }
  [[nodiscard]] bool was_interrupted() const noexcept { return was_interrupted_; }
  [[nodiscard]] bool has_failed() const { return root_cause_.failure().has_value(); }
  /// None for a job that ended by itself, without a failure.
  std::optional<int> exit_code() const noexcept { return decided_code_; }
  /// Whose failure the end is, and why, once that is decided; kSuccess before.
  [[nodiscard]] EndKind end_kind() const noexcept { return end_kind_; }
  [[nodiscard]] const std::string& end_reason() const noexcept { return end_reason_; }
  /// When the job began to end, by itself or for a reason.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> ending_since() const noexcept {
    return ending_since_;
  }
  /// After the end: a rank failed or a host was lost, and nobody asked for the end.
  [[nodiscard]] bool may_start_anew() const;
  /// After the end: no rank was started, and nobody asked for that.
  [[nodiscard]] bool failed_to_start() const noexcept {
    return !has_started_ && !was_interrupted_ && is_reported_;
  }

 private:
  void report_failure();
  std::string first_cause(const Failure& failure) const;
  void look_for_silent_host();
  void stop_for_signal(const std::string& reason, int signal_number);
  void decide(int exit_code, EndKind kind, const std::string& reason);
  void say_end(const std::string& reason, int exit_code, EndKind kind);
  void ask_for_wills(const std::string& reason, Milliseconds grace);
  void look_for_wills();
  void say_what_is_saved();
  void enter(Phase phase, Milliseconds next_after);
  void wait_for_next_phase(Milliseconds next_after);
  void next_phase();
  void leave();
  void finish_if_gone();
  void abandon();

  JobState& job_;
  RankChannel& channel_;
  std::function<void()> stop_starts_;
  asio::steady_timer phase_timer_;
  asio::steady_timer report_timer_;
  asio::steady_timer time_limit_;
  RootCause root_cause_;
  Phase phase_ = Phase::kStarting;
  Milliseconds kill_after_{0};
  std::set<std::uint32_t> awaited_wills_;  // nodes
  std::chrono::steady_clock::time_point saves_until_;
  std::optional<std::uint64_t> saved_step_;  // the newest
  WillEnd worst_will_ = WillEnd::kNothing;   // of those that are not saved
  std::optional<int> decided_code_;
  EndKind end_kind_ = EndKind::kSuccess;
  std::string end_reason_;
  std::optional<std::chrono::steady_clock::time_point> ending_since_;
  std::set<std::uint32_t> lost_nodes_;
  std::chrono::steady_clock::time_point
      agents_signal_at_;  // or `launcher stop`, which signals, too
  bool has_started_ = false;
  bool outlives_ranks_ = false;
  bool was_interrupted_ = false;
  bool is_reported_ = false;
  bool all_told_to_leave_ = false;
};

}  // namespace chainmail::launch
