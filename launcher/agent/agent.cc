// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "launcher/agent/children.h"
#include "launcher/agent/host_facts.h"
#include "launcher/options.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::Deadline;
using internal::UniqueFd;

// What may wait for the controller before the ranks' output is no longer read.
constexpr std::size_t kMaxQueuedBytes = std::size_t{1} << 20;
// For agents behind this one to end by themselves; mostly they have already.
constexpr std::chrono::milliseconds kTunnelTime{400};

UniqueFd taken_over(int fd, int replacement_flags) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.is_open()) throw system_error("agent: cannot take over a standard stream");
  // Nothing else may read or write the channel by accident.
  const UniqueFd null(open("/dev/null", replacement_flags | O_CLOEXEC));
  dup2(null.get(), fd);
  return copy;
}

std::map<std::string, std::string> own_environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) variables[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return variables;
}

}  // namespace

Agent::Agent(std::string marker)
    : marker_(std::move(marker)),
      signals_(io_),
      heartbeat_(io_),
      relay_(io_, [this](AgentMessage type, std::string body) {
        channel_->send(type, std::move(body));
        update_reading();
      }) {}

int Agent::run() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGUSR2, SIG_IGN);  // Grid Engine's warning goes to everyone; only ranks may use it
  adopt_orphans();
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) signals_.add(number);
  wait_for_signals();

  FrameChannel::Callbacks callbacks;
  callbacks.on_frame = [this](const internal::Frame& frame) { on_frame(frame); };
  callbacks.on_end = [this](const std::string&) { end(1); };
  callbacks.on_drained = [this] { update_reading(); };
  channel_ =
      std::make_unique<FrameChannel>(io_, taken_over(STDIN_FILENO, O_RDONLY),
                                     taken_over(STDOUT_FILENO, O_WRONLY), "", std::move(callbacks));
  channel_->send_marker(marker_);
  channel_->send(AgentMessage::kAgentHello, encode_hello(host_facts()));
  // After the hello, while the controller writes the order.
  cores_ = usable_cores();
  beat();
  io_.run();
  return exit_code_;
}

void Agent::wait_for_signals() {
  signals_.async_wait([this](const asio::error_code& error, int number) {
    if (error) return;
    if (number == SIGCHLD) {
      reap();
    } else if (number == SIGTERM && started_ && getppid() == warden_) {
      // Slurm's first word to the steps of a job that it ends: ranks have the time of an
      // interrupted job. Without a launcher the end of the channel is what ends them.
      channel_->send(AgentMessage::kAskedToEnd, "");
    } else {
      end(128 + number);
    }
    wait_for_signals();
  });
}

void Agent::beat() {
  // A cut network shows neither an end of file nor an error; silence is all there is. When this
  // process itself was held up, what came meanwhile has not been read yet: look again later.
  const bool was_late = watch_.was_late();
  if (channel_->silence() > kLease && !was_late) return end(1);
  channel_->send(AgentMessage::kHeartbeat, "");
  for (const Rank& rank : ranks_) {
    if (rank.is_running) memory_.look(rank.pid);
  }
  memory_.look_at_machine();
  heartbeat_.expires_after(kHeartbeatInterval);
  heartbeat_.async_wait([this](const asio::error_code& error) {
    if (!error) beat();
  });
}

void Agent::on_frame(const internal::Frame& frame) {
  switch (type_of(frame)) {
    case AgentMessage::kStartPart:
      order_bytes_ += frame.body;
      break;
    case AgentMessage::kStart:
      if (started_ && !told_all_exited_) {
        throw SystemError("agent protocol: started while ranks run", EPROTO);
      }
      order_ = decode_order(order_bytes_);
      order_bytes_.clear();
      start_ranks();
      break;
    case AgentMessage::kSignalRanks:
      signal_ranks(static_cast<int>(BodyReader(frame.body).u32()));
      break;
    case AgentMessage::kOutputTaken:
      on_output_taken(frame);
      break;
    case AgentMessage::kRankInput:
      on_rank_input(frame);
      break;
    case AgentMessage::kLeave:
      end(0);
      break;
    case AgentMessage::kRankBytes:
      relay_to_rank(frame);
      break;
    case AgentMessage::kMpi:
      on_mpi(frame);
      break;
    case AgentMessage::kTunnelOpen:
    case AgentMessage::kTunnelInput:
    case AgentMessage::kTunnelImage:
    case AgentMessage::kTunnelKill:
      relay_.on_frame(frame);
      break;
    case AgentMessage::kPreload:
      on_preload(frame);
      break;
    case AgentMessage::kHeartbeat:
      break;
    case AgentMessage::kAgentHello:
    case AgentMessage::kRankStarted:
    case AgentMessage::kStartFailed:
    case AgentMessage::kRankExited:
    case AgentMessage::kRankStopped:
    case AgentMessage::kOutput:
    case AgentMessage::kAllExited:
    case AgentMessage::kInputTaken:
    case AgentMessage::kTunnelOutput:
    case AgentMessage::kTunnelEnded:
    case AgentMessage::kTunnelNoImage:
    case AgentMessage::kAskedToEnd:
      throw SystemError("agent protocol: message for the controller came to an agent", EPROTO);
  }
}

void Agent::report_start_failure(std::uint32_t rank, int error, const std::string& stage,
                                 const std::string& path) {
  send_started();
  channel_->send(
      AgentMessage::kStartFailed,
      BodyWriter().u32(rank).u32(static_cast<std::uint32_t>(error)).text(stage).text(path).take());
}

void Agent::start_ranks() {
  started_ = true;
  // What an earlier world has left; its helper goes before the next one comes.
  told_all_exited_ = false;
  ranks_.clear();
  mpi_.reset();
  ranks_.resize(order_.ranks.size());
  try {
    const auto cpus = share_cores(cores_, static_cast<int>(order_.ranks.size()), order_.binding,
                                  static_cast<int>(order_.processors));
    start_mpi();
    memory_.look_at_own_group();
    for (std::uint32_t local = 0; local < order_.ranks.size(); ++local) {
      if (!start_rank(local, cpus[local])) break;
    }
    send_started();
  } catch (const UsageError& error) {
    report_start_failure(order_.ranks.front().rank, 0, "bind", error.what());
  }
  tell_when_all_exited();
}

bool Agent::start_rank(std::uint32_t local, const CpuShare& share) {
  const OrderedRank& ordered = order_.ranks[local];
  const OrderedProgram& program = order_.programs[ordered.program];
  Rank& rank = ranks_[local];
  rank.number = ordered.rank;
  // The rank inherits it.
  if (chdir(program.working_directory.c_str()) != 0) {
    report_start_failure(rank.number, errno, "chdir", program.working_directory);
    return false;
  }
  try {
    RankHandles handles =
        spawn_rank({program.words, environment_of(local, share), share.cpus, ordered.has_input,
                    mpi_ ? mpi_->socket_for(rank.number) : UniqueFd()});
    rank.pid = handles.pid;
    rank.is_running = true;
    memory_.look_at_start_of(rank.pid);
    connect_streams(rank, std::move(handles));
  } catch (const SpawnError& error) {
    report_start_failure(rank.number, error.error(), error.stage(), program.words.front());
    return false;
  }
  started_news_ += internal::encode_frame(
      make_frame(AgentMessage::kRankStarted, BodyWriter()
                                                 .u32(rank.number)
                                                 .u32(static_cast<std::uint32_t>(rank.pid))
                                                 .text(cpu_list(share.cpus))
                                                 .take()));
  return true;
}

// Frames of many ranks in one go: each write wakes the controller, which takes its time from them.
void Agent::send_started() { channel_->send_raw(std::exchange(started_news_, {})); }

std::map<std::string, std::string> Agent::environment_of(std::uint32_t local,
                                                         const CpuShare& share) {
  std::map<std::string, std::string> variables = own_environment();
  const OrderedRank& ordered = order_.ranks[local];
  const OrderedProgram& program = order_.programs[ordered.program];
  variables["PWD"] = program.working_directory;
  for (const auto& [name, value] : program.variables) variables[name] = value;
  variables["RANK"] = std::to_string(ordered.rank);
  variables["WORLD_SIZE"] = std::to_string(order_.world_size);
  variables["LOCAL_RANK"] = std::to_string(local);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(order_.ranks.size());
  variables["NODE_RANK"] = std::to_string(order_.node_rank);
  variables["CHAINMAIL_GENERATION"] = std::to_string(order_.generation);
  // Its stdout is a pty in any case; this says whether people watch it.
  variables["CHAINMAIL_TERMINAL"] = order_.carriage_returns ? "1" : "0";
  // emplace keeps what the user set. Spinning OpenMP workers cost ten times the CPU time as soon
  // as ranks share cores.
  variables.emplace("OMP_NUM_THREADS", std::to_string(share.cores));
  variables.emplace("OMP_WAIT_POLICY", "passive");
  variables.erase("CHAINMAIL_JOB_FD");
  if (mpi_) {
    const bool is_crowded = order_.ranks.size() > cores_.size();
    mpi_->add_variables(variables, ordered.rank, is_crowded);
  }
  return variables;
}

void Agent::connect_streams(Rank& rank, RankHandles handles) {
  RankStreams::Callbacks callbacks;
  const std::uint32_t number = rank.number;
  callbacks.on_output = [this, number](std::uint8_t stream, std::string_view piece) {
    channel_->send(AgentMessage::kOutput, BodyWriter().u32(number).u8(stream).text(piece).take());
    update_reading();
  };
  callbacks.on_job_bytes = [this, number](std::string_view bytes) {
    channel_->send(AgentMessage::kRankBytes, BodyWriter().u32(number).text(bytes).take());
    update_reading();
  };
  callbacks.on_input_taken = [this, number](bool more) {
    channel_->send(AgentMessage::kInputTaken, BodyWriter().u32(number).u8(more ? 1 : 0).take());
  };
  rank.streams = std::make_unique<RankStreams>(
      io_, std::move(handles), RankStreams::Settings{order_.carriage_returns, order_.output_window},
      std::move(callbacks));
}

RankStreams* Agent::streams_of(std::uint32_t number) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(), [number](const Rank& rank) {
    return rank.streams && rank.number == number;
  });
  return found == ranks_.end() ? nullptr : found->streams.get();
}

void Agent::relay_to_rank(const internal::Frame& frame) {
  BodyReader body(frame.body);
  if (RankStreams* streams = streams_of(body.u32())) streams->write_job(body.text());
}

void Agent::on_output_taken(const internal::Frame& frame) {
  BodyReader body(frame.body);
  RankStreams* streams = streams_of(body.u32());
  const std::uint8_t stream = body.u8();
  if (streams != nullptr) streams->output_taken(stream, body.u32());
}

void Agent::on_rank_input(const internal::Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t number = body.u32();
  if (RankStreams* streams = streams_of(number)) {
    streams->write_input(body.text());
  } else {
    channel_->send(AgentMessage::kInputTaken, BodyWriter().u32(number).u8(0).take());
  }
}

void Agent::signal_ranks(int number) {
  for (Rank& rank : ranks_) {
    if (!rank.is_running) continue;
    rank.is_killed_by_us = rank.is_killed_by_us || number == SIGKILL;
    kill(-rank.pid, number);
    // A stopped rank acts on nothing but SIGKILL until it continues.
    if (number == SIGTERM) kill(-rank.pid, SIGCONT);
  }
}

// A slow channel slows the ranks down instead of filling memory.
void Agent::update_reading() {
  const bool has_room = channel_->queued_bytes() < kMaxQueuedBytes;
  for (Rank& rank : ranks_) {
    if (rank.streams) rank.streams->set_reading(has_room);
  }
  relay_.set_reading(has_room);
}

void Agent::reap() {
  for (Rank& rank : ranks_) {
    while (rank.is_running) {
      siginfo_t info{};
      // WNOWAIT keeps the zombie, and with it the number of its process group, until all that
      // is left of the group has been killed.
      const int options = WEXITED | WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT;
      if (waitid(P_PID, static_cast<id_t>(rank.pid), &info, options) != 0 || info.si_pid == 0) {
        break;
      }
      if (info.si_code == CLD_STOPPED || info.si_code == CLD_CONTINUED) {
        waitid(P_PID, static_cast<id_t>(rank.pid), &info, WSTOPPED | WCONTINUED | WNOHANG);
        const std::uint8_t stopped = info.si_code == CLD_STOPPED ? 1 : 0;
        channel_->send(AgentMessage::kRankStopped,
                       BodyWriter().u32(rank.number).u8(stopped).take());
        continue;
      }
      on_exit(rank, info);
    }
  }
  relay_.reap();
  reap_orphans();
  tell_when_all_exited();
}

// Ranks that ended have been dealt with; what else has ended came from them.
void Agent::reap_orphans() {
  while (true) {
    siginfo_t info{};
    if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
    const bool is_rank = std::any_of(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
      return rank.is_running && rank.pid == info.si_pid;
    });
    if (is_rank || relay_.owns(info.si_pid)) return reap();
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

void Agent::on_exit(Rank& rank, const siginfo_t& info) {
  kill(-rank.pid, SIGKILL);
  int status = 0;
  rusage usage{};
  wait4(rank.pid, &status, WNOHANG, &usage);
  rank.is_running = false;
  // Everything it said comes before the news that it is gone.
  rank.streams->finish();
  if (mpi_) mpi_->on_rank_exit(rank.number, info.si_code == CLD_EXITED && info.si_status == 0);
  channel_->send(AgentMessage::kRankExited, encode_exit(exit_of(rank, info, usage.ru_maxrss)));
  memory_.forget(rank.pid);
}

RankExit Agent::exit_of(const Rank& rank, const siginfo_t& info, std::int64_t peak_kib) const {
  RankExit exit;
  exit.rank = rank.number;
  exit.by_signal = info.si_code != CLD_EXITED;
  exit.value = static_cast<std::uint32_t>(info.si_status);
  if (exit.by_signal && info.si_status == SIGKILL && !rank.is_killed_by_us) {
    const KillReport report = memory_.explain(rank.pid, peak_kib);
    exit.out_of_memory = report.is_out_of_memory;
    exit.detail = report.detail;
  }
  return exit;
}

void Agent::tell_when_all_exited() {
  if (!started_ || told_all_exited_) return;
  for (const Rank& rank : ranks_) {
    if (rank.is_running) return;
  }
  told_all_exited_ = true;
  channel_->send(AgentMessage::kAllExited, "");
}

void Agent::end(int exit_code) {
  exit_code_ = exit_code;
  signal_ranks(SIGKILL);
  relay_.close(Deadline::after(kTunnelTime));
  const auto left = end_all_children(Deadline::after(std::chrono::milliseconds(1500)));
  for (const pid_t pid : left) {
    const std::string text = "agent: process " + std::to_string(pid) +
                             " does not end (uninterruptible sleep?); it is left behind\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
  }
  mpi_.reset();  // its folders, now that nobody writes into them
  preload_.reset();
  io_.stop();
}

}  // namespace chainmail::launch
