// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who belongs to the job: which ranks have begun, stand still, were stopped, have ended or are lost
// with their host. Each change is recorded, told to the other ranks where it concerns them, and
// handed to Shutdown where it is a reason to end the job.
//
// One thread, the io_context's.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/membership/types.h"
#include "launcher/controller/ranks/rank_channel.h"
#include "launcher/controller/ranks/stall_detector.h"
#include "launcher/controller/shutdown.h"
#include "launcher/controller/state/job_state.h"

namespace chainmail::launch {

/// Who decides in an elastic job about what would end any other.
struct ElasticFates {
  std::function<void(std::uint32_t rank, int code, const std::string& cause)> on_ended;
  std::function<void(std::uint32_t rank, int code, const std::string& cause)> on_not_started;
  std::function<void(std::uint32_t rank, bool is_stopped)> on_stopped;
  std::function<void(std::uint32_t rank, const std::string& cause)> on_stalled;
  std::function<void(std::uint32_t node, const std::string& reason)> on_host_lost;
  /// The world whose members can be expected to make steps; null where there is none.
  std::function<const membership::World*()> world;
};

class Membership {
 public:
  /// `on_gone`: a rank takes no input any more.
  Membership(JobState& job, RankChannel& channel, Shutdown& shutdown,
             std::function<void(std::uint32_t rank)> on_gone);

  /// From now on these decide what becomes of the job.
  void decide_by(ElasticFates fates) { fates_ = std::move(fates); }

  [[nodiscard]] bool decides_elsewhere() const noexcept { return fates_.has_value(); }
  /// Of an elastic job: there is no process of this rank, and there will be none. Nothing happens
  /// where it is gone already.
  void on_not_started(std::uint32_t rank, int code, const std::string& cause);

  /// What the agent of `node` reports: kRankStarted, kRankStopped, kRankExited. Throws
  /// SystemError(EPROTO) for ranks of others.
  void on_started(std::uint32_t node, const internal::Frame& frame);
  void on_stopped(std::uint32_t node, const internal::Frame& frame);
  void on_exited(std::uint32_t node, const RankExit& exit);
  /// An agent that had said hello is out of reach.
  void on_host_lost(std::uint32_t node, const std::string& reason);
  void on_step(std::uint32_t rank, const Progress& progress);
  /// Called once, when every rank that there is by then has started, or will not.
  void tell_all_started(std::function<void()> on_all_started) {
    on_all_started_ = std::move(on_all_started);
  }
  /// Since then; nothing before.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> all_started_at() const {
    return all_started_at_;
  }
  /// The most that some rank has told; the two may be of different ones.
  [[nodiscard]] const Progress& most_progress() const noexcept { return most_progress_; }
  /// Every now and then. `was_late`: this process was held up itself.
  void check_progress(bool was_late);

 private:
  using Time = std::chrono::steady_clock::time_point;

  bool take_out(std::uint32_t rank);
  void look_for_all_started();
  void lose(std::uint32_t rank, const std::string& cause);
  void give_up_stopped(std::uint32_t rank, Time since);
  void end_stall(const Stall& stall);

  JobState& job_;
  RankChannel& channel_;
  Shutdown& shutdown_;
  std::function<void(std::uint32_t rank)> on_gone_;
  std::optional<ElasticFates> fates_;
  std::function<void()> on_all_started_;
  std::optional<Time> all_started_at_;
  std::uint32_t started_ = 0;      // ranks that have started,
  std::uint32_t not_started_ = 0;  // and those that are gone without that
  Progress most_progress_;
  StallDetector stalls_;
  bool has_told_stall_ = false;
  membership::Generation checked_world_ = 0;
};

}  // namespace chainmail::launch
