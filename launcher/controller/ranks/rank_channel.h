// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What ranks with the plugin and the launcher say to each other, over their agents: the welcome,
// the job's store, progress, and news of ranks that are lost. News go once to each node, whose
// agent tells its ranks; what is long goes once over each connection
// (launcher/tree/shared_texts.h), so that what this process sends grows with the number of hosts
// and not with its square.
//
// One thread, the io_context's.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/membership/wire.h"
#include "launcher/controller/ranks/stall_detector.h"
#include "launcher/controller/ranks/store_server.h"
#include "launcher/controller/state/job_state.h"
#include "launcher/controller/state/root_cause.h"

namespace chainmail::launch {

class RankChannel {
 public:
  struct Callbacks {
    std::function<void(std::uint32_t rank, const Progress& progress)> on_step;
    /// A rank's group has ended with an error, of which it blames one rank.
    std::function<void(Blame blame)> on_blame;
    /// A rank's requests cannot be answered.
    std::function<void(Failure failure)> fail;
    /// What a member of an elastic job says.
    std::function<void(std::uint32_t rank, const membership::MemberMessage& message)> on_member =
        {};
    /// And what a shard takes there, again and again while it makes steps.
    std::function<void(std::uint32_t rank, std::chrono::microseconds time)> on_shard_time = {};
    /// The first rank has said hello.
    std::function<void()> on_first_word = {};
    /// This rank's program knows nothing of elastic jobs.
    std::function<void(std::uint32_t rank)> on_fixed_size = {};
  };

  using Time = std::chrono::steady_clock::time_point;

  RankChannel(JobState& job, Callbacks callbacks,
              std::function<Time()> now = std::chrono::steady_clock::now);

  /// What every rank has to know of the job; all agents have said hello. `mpi_node_names`: none
  /// without MPI.
  void send_table(const std::vector<std::string>& mpi_node_names);
  /// Of an elastic job: what the ranks of this node, which has said hello, have to know.
  void send_table_to(std::uint32_t node);
  /// Nothing is sent to one that is gone.
  void tell_member(std::uint32_t rank, const membership::LauncherWord& word);
  /// A kRankBytes frame. Throws SystemError(EPROTO) for what an agent must not say; a rank's
  /// nonsense is the rank's failure.
  void on_bytes(std::uint32_t node, const internal::Frame& frame);
  /// The others' collectives end with it at once, instead of a time limit.
  void tell_lost(std::uint32_t rank, const std::string& cause);
  /// Collectives in flight end with it.
  void tell_ending(const std::string& reason);
  /// For ranks that wait for this one and have not met it: a rank may end while others go on.
  void list_ended(std::uint32_t rank, const std::string& cause);
  /// No member is in that world of an elastic job any more.
  void forget_world(membership::Generation generation);
  /// The rank is gone: forget what it waits for.
  void forget(std::uint32_t rank) { store_.forget(rank); }
  /// The root cause is known: whatever fails now is its consequence, and everybody has heard of the
  /// cause.
  void close_news() noexcept { has_news_ = false; }
  /// Whether a rank has said hello. Programs without the plugin hear no news.
  [[nodiscard]] bool has_listeners() const noexcept { return has_listeners_; }

 private:
  [[nodiscard]] JobTable table() const;
  void on_message(std::uint32_t rank, const internal::Frame& frame);
  void on_group_failed(std::uint32_t rank, const internal::Frame& frame);
  void send(std::uint32_t rank, internal::JobMessage type, std::string body);
  void append_ended(const std::string& entries);
  bool may_tell(internal::JobMessage type);
  void tell(internal::JobMessage type, std::uint32_t except, const std::string& body);

  JobState& job_;
  Callbacks callbacks_;
  StoreServer store_;
  std::string ended_lately_;  ///< of an elastic job's kEndedRanksKey: since the last new world
  std::function<Time()> now_;
  Time group_failed_at_;         // the last one
  int group_failures_told_ = 0;  // of one failure
  int losses_told_ = 0;
  bool has_news_ = true;
  bool has_listeners_ = false;
};

}  // namespace chainmail::launch
