// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Runs one job: starts an agent per node, has them start the ranks, and hands what they say to
// those who own a part of the job:
//
//   AgentStarts     an agent on every host
//   FileStaging     files that ranks need there
//   HostPreparation a command that runs there before them
//   MpiCoordinator  MPI_Init and what it asks for
//   RankChannel     what ranks and the launcher say to each other; the store
//   Membership      which ranks there are, and what has become of them
//   SignalRelay     signals from outside
//   Shutdown        how the job ends
//   WorldOwner      of an elastic job: which ranks there shall be
//   FixedOwner      the same, where the program keeps its number of ranks
//
// All of them reach hosts through Agents, and know of each other what JobState holds.
//
// One thread with an event loop; no listening socket anywhere.

#pragma once

#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/controller/elastic/fixed/fixed_owner.h"
#include "launcher/controller/elastic/world_owner.h"
#include "launcher/controller/membership.h"
#include "launcher/controller/mpi_coordinator.h"
#include "launcher/controller/outside/observed_job.h"
#include "launcher/controller/ranks/rank_channel.h"
#include "launcher/controller/ranks/rank_input.h"
#include "launcher/controller/ranks/rank_orders.h"
#include "launcher/controller/shutdown.h"
#include "launcher/controller/signal_relay.h"
#include "launcher/controller/starting/agent_starts.h"
#include "launcher/controller/starting/file_staging.h"
#include "launcher/controller/starting/host_preparation.h"
#include "launcher/controller/state/job_end.h"
#include "launcher/controller/state/job_state.h"

namespace chainmail::launch {

class Controller {
 public:
  /// `ignored_signals`: by the launcher's caller, so by the job. `generation` counts the worlds of
  /// one job: 0, and one more for each restart. `hosts`: of an elastic job.
  Controller(Options options, Placement placement, std::string launcher_path,
             JobDirectory& directory, std::vector<int> ignored_signals,
             std::uint32_t generation = 0, HostSet hosts = {}, JobObserver observer = {});
  /// Until the job is over; the launcher's exit code.
  /// `time_left`: of --timeout, where earlier worlds have used some of it.
  int run(std::optional<std::chrono::milliseconds> time_left = {});
  /// After run(): a rank failed or a host was lost, and nobody asked for the job's end.
  [[nodiscard]] bool may_start_anew() const { return shutdown_.may_start_anew(); }
  /// Of an elastic job whose program keeps its number of ranks.
  struct Restart {
    bool is_failure = false;           ///< of a rank or host; otherwise what was planned
    HostSet hosts;                     ///< as they were read last
    std::vector<std::string> leaving;  ///< names of those that are about to end
    /// When its ranks were started, where that is known.
    std::optional<std::chrono::steady_clock::time_point> begun_at;
  };
  /// After run(): whether its ranks are to be started anew.
  [[nodiscard]] std::optional<Restart> restart() const;
  /// After run(): ranks on a host out of reach may live on for the length of their lease.
  [[nodiscard]] bool has_lost_host() const noexcept { return !shutdown_.lost_nodes().empty(); }
  /// After run(): how and why it ended.
  [[nodiscard]] JobEnd end() const;

 private:
  // starting
  void prepare_mpi();
  void prepare_staging();
  void prepare_hosts();
  void prepare_starts();
  void prepare_elastic();
  void prepare_world();
  void prepare_fixed();
  void on_hello();
  void start_ranks();
  void send_orders();
  StartOrder order_for(std::uint32_t node) const;
  void start_input();

  // what agents say
  void on_frame(std::uint32_t node, const internal::Frame& frame);
  void on_output(std::uint32_t node, const internal::Frame& frame);
  void on_input_taken(std::uint32_t node, const internal::Frame& frame);
  void on_start_failed(std::uint32_t node, const internal::Frame& frame);
  void on_agent_lost(std::uint32_t node, const std::string& reason);
  void on_all_exited(std::uint32_t node);

  // of an elastic job (elastic_job.cc)
  void stop_starts();
  void on_member_exits(std::uint32_t node);
  bool on_leaving(std::uint32_t node);
  void on_fixed_size(const std::string& cause, std::optional<Failure> failure);
  void start_anew(const std::string& cause);
  void on_member_lost(std::uint32_t node, const std::string& cause);
  void on_world_end(int code, const std::string& cause);

  void fail(const std::string& cause);
  void beat();
  void obey(StopRequest request);
  void remove_stale_folders();
  int finish_output();

  const HostSet hosts_;
  JobState job_;
  ObservedJob observed_;
  std::string launcher_path_;
  RankOrders orders_;
  RankChannel channel_;
  Shutdown shutdown_;
  Membership members_;
  SignalRelay signals_;
  std::unique_ptr<RankInput> input_;
  std::unique_ptr<MpiCoordinator> mpi_;  // none with --mpi none
  std::unique_ptr<FileStaging> staging_;
  std::unique_ptr<HostPreparation> preparation_;  // none where nothing is to be run
  std::unique_ptr<AgentStarts> starts_;
  std::unique_ptr<WorldOwner> world_;  // of an elastic job
  std::unique_ptr<FixedOwner> fixed_;  // or this
  asio::steady_timer heartbeat_;
  LagDetector lag_;
  int exit_code_ = 0;
  std::string lost_output_;
  bool lost_local_agent_ = false;
  bool has_turned_fixed_ = false;
  bool starts_anew_ = false;
};

}  // namespace chainmail::launch
