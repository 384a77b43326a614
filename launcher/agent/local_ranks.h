// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The ranks of one agent: starts their processes, a few at a time, follows them to their programs,
// signals them and says how each ended. A rank's process enters its folder and looks for its
// program by itself, so that a file system that does not answer holds up nobody else.
//
// One thread, the main one (PR_SET_PDEATHSIG of the ranks depends on it).

#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/agent/expanded_program.h"
#include "launcher/agent/rank_streams.h"
#include "launcher/cgroup/control_group.h"
#include "launcher/cgroup/oom_detector.h"
#include "launcher/channel/wire.h"
#include "launcher/job/environment.h"
#include "launcher/mpi/service/mpi_service.h"
#include "launcher/placement/cpu_shares.h"
#include "launcher/process/signals.h"

namespace chainmail::launch {

class LocalRanks {
 public:
  using Send = std::function<void(AgentMessage type, std::string body)>;
  using SendRaw = std::function<void(std::string frames)>;

  /// `descriptors`: the limit on open files that ranks get; `group`: what they enter. What ranks
  /// say, and what becomes of them, is sent to the controller.
  LocalRanks(asio::io_context& io, const rlimit& descriptors, const ControlGroup& group, Send send,
             SendRaw send_raw);

  /// `cores`: of this machine. `mpi` may be null; otherwise it lives until clear(). `job_temp`: the
  /// folder of the job's own; empty: none.
  void start(StartOrder order, const std::vector<Core>& cores, MpiService* mpi,
             const std::string& job_temp = "");
  /// Nothing of it can be started on this host: tells why.
  void refuse(StartOrder order, const std::string& why);
  /// From now on what ranks say goes here instead of to the controller.
  void listen(std::function<void(std::uint32_t rank, std::string_view bytes)> listener);
  /// And what they print goes nowhere.
  void drop_output();
  /// Those that have a process.
  [[nodiscard]] std::vector<std::uint32_t> running() const;
  /// Forgets the ranks of a world that has ended.
  void clear();
  /// The last order, of which some rank is left.
  [[nodiscard]] bool is_running() const noexcept { return is_started_ && !has_told_end_; }
  const StartOrder& order() const noexcept { return order_; }

  /// Null for a rank that is not here or was never started.
  [[nodiscard]] RankStreams* streams_of(std::uint32_t rank);
  /// To the job sockets of all ranks but one.
  void write_all(const std::string& bytes, std::uint32_t except);
  /// Of the terminals that ranks write to.
  void set_window(const WindowSize& size);
  /// Whether there is room for what ranks say.
  void set_reading(bool reading);

  /// To the process groups; SIGTERM and SIGKILL also end the starting.
  void signal_all(int number);
  /// SIGKILL to the process group of this rank, if it is here; as soon as it has a process.
  void end(std::uint32_t number);
  /// To the main processes: a signal that announces something.
  void pass_signal(int number);
  [[nodiscard]] bool has_passed(int number) const { return passed_.has(number); }

  /// After SIGCHLD: looks which ranks were stopped, continued or have ended.
  void reap();
  [[nodiscard]] bool owns(pid_t pid) const;
  /// With each heartbeat: ranks that do not start, and memory.
  void check();

 private:
  struct Rank {
    std::uint32_t number = 0;
    pid_t pid = -1;
    bool is_waiting = false;   ///< has no process yet
    bool is_running = false;   ///< has one
    bool is_starting = false;  ///< which has not come to its program yet
    bool is_late = false;      ///< and that has been told
    std::string folder;        ///< its working directory
    std::string program;       ///< its first word
    StartReport start;
    std::set<int> early_signals;  ///< for it, once its program runs
    std::chrono::steady_clock::time_point started;
    std::shared_ptr<ByteStream> start_stream;
    bool has_run = false;    ///< its program
    bool is_to_end = false;  ///< by end()
    bool is_killed_by_us = false;
    std::unique_ptr<RankStreams> streams;
  };

  void start_some();
  bool start_rank(std::uint32_t local);
  [[nodiscard]] std::uint32_t places() const;
  [[nodiscard]] std::uint32_t place_of(std::uint32_t local) const;
  void start_no_more();
  static void drop_half_started(Rank& rank);
  void follow_start(std::uint32_t local, internal::UniqueFd news);
  void on_start_end(std::uint32_t local);
  void look_at_memory();
  void send_started();
  void connect_streams(Rank& rank, RankHandles handles);
  void take(StartOrder order, const std::string& job_temp);
  [[nodiscard]] Environment fixed_variables(std::uint32_t local) const;
  [[nodiscard]] ExpandedProgram program_of(std::uint32_t local, const CpuShare& share) const;
  void report_start_failure(std::uint32_t rank, int error, const std::string& stage,
                            const std::string& path);
  void on_exit(Rank& rank, const siginfo_t& info);
  RankExit exit_of(const Rank& rank, const siginfo_t& info, const rlimit& limit,
                   const rusage& usage) const;
  void tell_when_all_exited();

  asio::io_context& io_;
  const rlimit descriptors_;
  const ControlGroup& group_;
  Send send_;
  SendRaw send_raw_;
  std::function<void(std::uint32_t rank, std::string_view bytes)> listener_;
  StartOrder order_;
  std::string job_temp_;
  MpiService* mpi_ = nullptr;
  std::size_t cores_ = 0;
  std::vector<Rank> ranks_;
  std::vector<CpuShare> shares_;
  std::uint32_t next_start_ = 0;  // of ranks_
  std::string started_news_;      // not yet sent
  OomDetector oom_;
  std::size_t next_look_ = 0;  // of oom_, at which rank
  RecentSignals passed_;
  bool is_started_ = false;
  bool has_told_end_ = false;
};

}  // namespace chainmail::launch
