// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The launcher's process on one node: has the ranks there started (LocalRanks), relays what they
// and the controller say to each other, and ends them when it is told to, when the channel closes
// or when the controller has been silent for the lease.
//
// One thread, the main one (PR_SET_PDEATHSIG of the ranks depends on it).

#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/agent/last_will.h"
#include "launcher/agent/local_ranks.h"
#include "launcher/cgroup/control_group.h"
#include "launcher/channel/frame_channel.h"
#include "launcher/files/agent_folders.h"
#include "launcher/mpi/service/mpi_service.h"
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
  void on_frame(const internal::Frame& frame);
  void start_ranks();
  void on_output_taken(const internal::Frame& frame);
  void on_rank_input(const internal::Frame& frame);
  void on_signal(int number);
  void on_passed_signal(int number);
  void tell_signalled(int number, bool has_passed_it);
  void wait_for_signals();
  void reap();
  void reap_orphans();
  void send(AgentMessage type, std::string body);
  void update_reading();
  void beat();
  static void say(const std::string& message);
  void lose_launcher();
  void on_make_will(const internal::Frame& frame);
  void make_will(std::chrono::milliseconds grace, const std::string& reason);
  void on_will_made(WillEnd how, std::uint64_t step);
  void end(int exit_code);
  void start_mpi(const StartOrder& order);
  MpiOrder complete_mpi_order(const StartOrder& start) const;
  void send_mpi(const MpiMessage& message);
  void on_preload(const internal::Frame& frame);
  void welcome(std::uint32_t rank);
  void tell_ranks(const internal::Frame& frame);

  // A launcher that starts a thousand hosts may be slow to answer this one's hello.
  static constexpr std::chrono::milliseconds kFirstWord{60000};

  std::string marker_;
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
  std::unique_ptr<PreloadStore> preload_;
  std::unique_ptr<AgentFolder> job_temp_;
  std::unique_ptr<MpiService> mpi_;
  MpiPieces mpi_pieces_;
  LocalRanks ranks_;
  std::chrono::milliseconds lease_ = kFirstWord;
  LagDetector lag_;
  std::set<std::uint32_t> welcomed_;  ///< ranks that have spoken to the launcher
  std::unique_ptr<LastWill> will_;    ///< of an elastic job that ends
  bool is_launcher_lost_ = false;
  RecentSignals got_;  // by this process itself, of those that are passed on
  int exit_code_ = 0;
};

}  // namespace chainmail::launch
