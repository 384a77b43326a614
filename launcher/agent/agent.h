// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The launcher's hand on one node: starts the ranks there, relays their output and their job
// sockets, and ends them when it is told to, when the channel closes or when the controller has
// been silent for the lease.
//
// One thread, the main one (PR_SET_PDEATHSIG of the ranks depends on it).

#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/rank_streams.h"
#include "launcher/cgroup/control_group.h"
#include "launcher/cgroup/oom_detector.h"
#include "launcher/channel/frame_channel.h"
#include "launcher/job/environment.h"
#include "launcher/mpi/service/mpi_service.h"
#include "launcher/placement/cpu_shares.h"
#include "launcher/process/signals.h"
#include "launcher/staging/preload_store.h"
#include "launcher/tree/relay.h"

namespace chainmail::launch {

class Agent {
 public:
  /// `descriptors`: the limit on open files that ranks get; `group`: what they enter.
  Agent(std::string marker, const rlimit& descriptors, ControlGroup group);
  /// Speaks over standard input and output until the job is over; the process's exit code.
  int run();

 private:
  struct Rank {
    std::uint32_t number = 0;
    pid_t pid = -1;
    bool is_waiting = false;   ///< has no process yet
    bool is_running = false;   ///< has one
    bool is_starting = false;  ///< which has not come to its program yet
    bool is_late = false;      ///< and that has been told
    StartReport start;
    std::set<int> early_signals;  ///< for it, once its program runs
    std::chrono::steady_clock::time_point started;
    std::shared_ptr<ByteStream> start_stream;
    bool has_run = false;  ///< its program
    bool is_killed_by_us = false;
    std::unique_ptr<RankStreams> streams;
  };

  void on_frame(const internal::Frame& frame);
  void start_ranks();
  void start_some();
  bool start_rank(std::uint32_t local);
  void start_no_more();
  void follow_start(std::uint32_t local, internal::UniqueFd news);
  void on_start_end(std::uint32_t local);
  void look_at_starts();
  void look_at_memory();
  void send_started();
  void connect_streams(Rank& rank, RankHandles handles);
  Environment environment_of(std::uint32_t local, const CpuShare& share);
  void report_start_failure(std::uint32_t rank, int error, const std::string& stage,
                            const std::string& path);
  /// Null for a rank that is not here or was never started.
  RankStreams* streams_of(std::uint32_t rank);
  void relay_to_rank(const internal::Frame& frame);
  void on_output_taken(const internal::Frame& frame);
  void on_rank_input(const internal::Frame& frame);
  void signal_ranks(int number);
  void pass_signal(int number);
  void on_signal(int number);
  void on_passed_signal(int number);
  void tell_signalled(int number, bool has_passed_it);
  RankExit exit_of(const Rank& rank, const siginfo_t& info, const rlimit& limit,
                   const rusage& usage) const;
  void reap();
  void reap_orphans();
  void on_exit(Rank& rank, const siginfo_t& info);
  void tell_when_all_exited();
  void update_reading();
  void wait_for_signals();
  void beat();
  static void say(const std::string& message);
  void end(int exit_code);
  void start_mpi();  // agent_mpi.cc, as what follows
  void send_mpi(const MpiMessage& message);
  void on_mpi(const internal::Frame& frame);
  void on_preload(const internal::Frame& frame);
  void on_spread(const internal::Frame& frame);  // agent_spread.cc, as what follows
  void welcome(std::uint32_t rank);
  void tell_ranks(const internal::Frame& frame);
  MpiOrder complete_mpi_order() const;

  std::string marker_;
  const rlimit descriptors_;
  const ControlGroup group_;
  const pid_t supervisor_;
  asio::io_context io_;
  asio::signal_set signals_;
  asio::steady_timer heartbeat_;
  std::vector<Core> cores_;
  std::unique_ptr<FrameChannel> channel_;
  SharedTexts shared_;
  Relay relay_;
  std::optional<JobTable> table_;
  std::string order_bytes_;
  StartOrder order_;
  std::unique_ptr<PreloadStore> preload_;
  // A launcher that starts a thousand hosts may be slow to answer this one's hello.
  static constexpr std::chrono::milliseconds kFirstWord{60000};

  std::unique_ptr<MpiService> mpi_;
  MpiPieces mpi_pieces_;
  std::vector<Rank> ranks_;
  std::vector<CpuShare> shares_;
  std::uint32_t next_start_ = 0;  // of ranks_
  std::string started_news_;      // not yet sent
  std::chrono::milliseconds lease_ = kFirstWord;
  OomDetector memory_;
  std::size_t next_look_ = 0;  // of memory_, at which rank
  LagDetector lag_;
  bool started_ = false;
  bool told_all_exited_ = false;
  int exit_code_ = 0;
  // When this process itself got a signal that is passed on, and when one was passed on last.
  RecentSignals got_;
  RecentSignals passed_;
};

}  // namespace chainmail::launch
