// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The launcher's hand on one node: starts the ranks there, relays their output and their job
// sockets, and ends them when it is told to, when the channel closes or when the controller has
// been silent for the lease.
//
// One thread, the main one (PR_SET_PDEATHSIG of the ranks depends on it).

#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <asio/io_context.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>
#include <memory>
#include <string>
#include <vector>

#include "launcher/agent/cpu_shares.h"
#include "launcher/agent/memory_watch.h"
#include "launcher/agent/rank_streams.h"
#include "launcher/channel/frame_channel.h"
#include "launcher/mpi/mpi_service.h"
#include "launcher/staging/preload_store.h"
#include "launcher/tree/relay.h"

namespace chainmail::launch {

class Agent {
 public:
  explicit Agent(std::string marker);
  /// Speaks over standard input and output until the job is over; the process's exit code.
  int run();

 private:
  struct Rank {
    std::uint32_t number = 0;
    pid_t pid = -1;
    bool is_running = false;
    bool is_killed_by_us = false;
    std::unique_ptr<RankStreams> streams;
  };

  void on_frame(const internal::Frame& frame);
  void start_ranks();
  bool start_rank(std::uint32_t local, const CpuShare& share);
  void send_started();
  void connect_streams(Rank& rank, RankHandles handles);
  std::map<std::string, std::string> environment_of(std::uint32_t local, const CpuShare& share);
  void report_start_failure(std::uint32_t rank, int error, const std::string& stage,
                            const std::string& path);
  /// Null for a rank that is not here or was never started.
  RankStreams* streams_of(std::uint32_t rank);
  void relay_to_rank(const internal::Frame& frame);
  void on_output_taken(const internal::Frame& frame);
  void on_rank_input(const internal::Frame& frame);
  void signal_ranks(int number);
  RankExit exit_of(const Rank& rank, const siginfo_t& info, std::int64_t peak_kib) const;
  void reap();
  void reap_orphans();
  void on_exit(Rank& rank, const siginfo_t& info);
  void tell_when_all_exited();
  void update_reading();
  void wait_for_signals();
  void beat();
  void end(int exit_code);
  void start_mpi();  // agent_mpi.cc, as what follows
  void send_mpi(const MpiMessage& message);
  void on_mpi(const internal::Frame& frame);
  void on_preload(const internal::Frame& frame);

  std::string marker_;
  asio::io_context io_;
  asio::signal_set signals_;
  asio::steady_timer heartbeat_;
  std::vector<Core> cores_;
  std::unique_ptr<FrameChannel> channel_;
  Relay relay_;
  std::string order_bytes_;
  StartOrder order_;
  std::unique_ptr<PreloadStore> preload_;
  std::unique_ptr<MpiService> mpi_;
  MpiPieces mpi_pieces_;
  std::vector<Rank> ranks_;
  std::string started_news_;  // not yet sent
  MemoryWatch memory_;
  PunctualityWatch watch_;
  pid_t warden_ = getppid();
  bool started_ = false;
  bool told_all_exited_ = false;
  int exit_code_ = 0;
};

}  // namespace chainmail::launch
