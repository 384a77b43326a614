// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/agent.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "launcher/agent/host_facts.h"
#include "launcher/agent/supervisor.h"
#include "launcher/job/options.h"
#include "launcher/process/children.h"
#include "launcher/process/signals.h"

namespace chainmail::launch {
namespace {

// The kernel kills at the hard limit; the soft one, where it is lower, sends SIGXCPU.
bool has_used_up_cpu_time(const rlimit& limit, const rusage& usage) {
  if (limit.rlim_max == RLIM_INFINITY) return false;
  const auto microseconds = [](const timeval& time) {
    return time.tv_sec * 1000000 + time.tv_usec;
  };
  return microseconds(usage.ru_utime) + microseconds(usage.ru_stime) >=
         static_cast<std::int64_t>(limit.rlim_max) * 1000000 - 100000;
}

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

}  // namespace

Agent::Agent(std::string marker, const rlimit& descriptors, ControlGroup group)
    : marker_(std::move(marker)),
      descriptors_(descriptors),
      group_(std::move(group)),
      supervisor_(getppid()),
      signals_(io_),
      heartbeat_(io_),
      relay_(
          io_, shared_,
          [this](AgentMessage type, std::string body) {
            channel_->send(type, std::move(body));
            update_reading();
          },
          descriptors_) {}

int Agent::run() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write fails, and says why
  adopt_orphans();
  for (const int number : {SIGCHLD, SIGTERM, SIGINT, SIGHUP}) signals_.add(number);
  for (const int number : kPassedSignals) signals_.add(number);
  wait_for_signals();

  FrameChannel::Callbacks callbacks;
  callbacks.on_frame = [this](const internal::Frame& frame) { on_frame(frame); };
  callbacks.on_end = [this](const std::string& reason) {
    if (reason != kClosed) say("the connection to the launcher ends: " + reason);
    end(1);
  };
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
  {
    // Asio leaves them with their default, and the exit code has still to be told.
    const SignalsBlocked blocked;
    signals_.clear();
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) signal(number, SIG_IGN);
    ignore_passed_signals();
  }
  return exit_code_;
}

void Agent::wait_for_signals() {
  signals_.async_wait([this](const asio::error_code& error, int number) {
    if (error) return;
    on_signal(number);
    wait_for_signals();
  });
}

// Schedulers send their signals here (Slurm to each task, Grid Engine to everything), and people
// do. The controller ends the job for all hosts alike, with time for ranks to finish.
void Agent::on_signal(int number) {
  if (number == SIGCHLD) return reap();
  if (is_passed_signal(number)) return on_passed_signal(number);
  if (getppid() != supervisor_)
    return end(128 + number);  // sent by the kernel: the supervisor has died
  tell_signalled(number, false);
}

// Its own ranks get it at once; the controller sees to all others.
void Agent::on_passed_signal(int number) {
  const auto& ignored = order_.ignored_signals;
  if (std::find(ignored.begin(), ignored.end(), static_cast<std::uint32_t>(number)) !=
      ignored.end()) {
    return;
  }
  const bool has_ranks = started_ && !told_all_exited_;
  const bool has_been_passed = passed_.has(number);
  if (has_ranks) got_.add(number);
  if (has_been_passed) return;
  if (has_ranks) pass_signal(number);
  tell_signalled(number, has_ranks);
}

void Agent::tell_signalled(int number, bool has_passed_it) {
  channel_->send(
      AgentMessage::kSignalled,
      BodyWriter().u32(static_cast<std::uint32_t>(number)).u8(has_passed_it ? 1 : 0).take());
}

void Agent::beat() {
  // A cut network shows neither an end of file nor an error; silence is all there is. When this
  // process itself was held up, what came meanwhile has not been read yet: look again later.
  const bool was_late = lag_.was_late();
  if (channel_->silence() > lease_ && !was_late) {
    say("nothing heard from the launcher for " + std::to_string(channel_->silence().count()) +
        " ms; the ranks here are ended");
    return end(1);
  }
  channel_->send_urgent(AgentMessage::kHeartbeat, "");
  // Before anything else: what follows takes its time on a busy host.
  heartbeat_.expires_after(kHeartbeatInterval);
  heartbeat_.async_wait([this](const asio::error_code& error) {
    if (!error) beat();
  });
  look_at_memory();
  look_at_starts();
}

// Of some ranks at a time, each in its turn: their files take up to 40 us a rank.
void Agent::look_at_memory() {
  constexpr std::size_t kRanksAtATime = 64;
  for (std::size_t i = 0; i < std::min(kRanksAtATime, ranks_.size()); ++i) {
    next_look_ = (next_look_ + 1) % ranks_.size();
    const Rank& rank = ranks_[next_look_];
    if (rank.is_running) memory_.look(rank.pid);
  }
  memory_.look_at_machine();
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
    case AgentMessage::kLease:
      lease_ = std::chrono::milliseconds(BodyReader(frame.body).u32());
      tell_supervisor(lease_);
      break;
    case AgentMessage::kPassSignal: {
      const int number = static_cast<int>(BodyReader(frame.body).u32());
      if (!got_.has(number)) pass_signal(number);
      break;
    }
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
    case AgentMessage::kTunnelUrgent:
    case AgentMessage::kTunnelShared:
      relay_.on_frame(frame);
      break;
    case AgentMessage::kSharedPart:
    case AgentMessage::kSharedDrop:
    case AgentMessage::kTable:
    case AgentMessage::kWelcomeRank:
    case AgentMessage::kNews:
    case AgentMessage::kSharedMpi:
      on_spread(frame);
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
    case AgentMessage::kSignalled:
      throw SystemError("agent protocol: message for the controller came to an agent", EPROTO);
  }
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
  if (number == SIGTERM || number == SIGKILL) start_no_more();
  for (Rank& rank : ranks_) {
    if (!rank.is_running) continue;
    rank.is_killed_by_us = rank.is_killed_by_us || number == SIGKILL;
    kill(-rank.pid, number);
    // A stopped rank acts on nothing but SIGKILL until it continues.
    if (number == SIGTERM) kill(-rank.pid, SIGCONT);
  }
}

// As under mpirun: what a rank has started is the rank's to tell. What has no program yet would die
// of it, or know nothing of it afterwards: it gets it when its program runs.
void Agent::pass_signal(int number) {
  if (number <= 0 || number >= NSIG) return;
  passed_.add(number);
  for (Rank& rank : ranks_) {
    if (rank.is_waiting || rank.is_starting) {
      rank.early_signals.insert(number);
    } else if (rank.is_running) {
      kill(rank.pid, number);
    }
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
    if (mpi_) mpi_->on_child_end(info);
    waitpid(info.si_pid, nullptr, WNOHANG);
  }
}

void Agent::on_exit(Rank& rank, const siginfo_t& info) {
  if (rank.is_starting) {
    rank.start_stream->drain();
    on_start_end(static_cast<std::uint32_t>(&rank - ranks_.data()));
  }
  send_started();
  kill(-rank.pid, SIGKILL);
  int status = 0;
  rusage usage{};
  rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  (void)prlimit(rank.pid, RLIMIT_CPU, nullptr, &limit);  // before it is reaped
  wait4(rank.pid, &status, WNOHANG, &usage);
  rank.is_running = false;
  // Everything it said comes before the news that it is gone.
  rank.streams->finish();
  if (rank.start.error() != 0) return memory_.forget(rank.pid);  // it was no rank yet
  if (mpi_) mpi_->on_rank_exit(rank.number, info.si_code == CLD_EXITED && info.si_status == 0);
  channel_->send(AgentMessage::kRankExited, encode_exit(exit_of(rank, info, limit, usage)));
  memory_.forget(rank.pid);
}

RankExit Agent::exit_of(const Rank& rank, const siginfo_t& info, const rlimit& limit,
                        const rusage& usage) const {
  RankExit exit;
  exit.rank = rank.number;
  exit.by_signal = info.si_code != CLD_EXITED;
  exit.value = static_cast<std::uint32_t>(info.si_status);
  if (exit.by_signal && info.si_status == SIGKILL && has_used_up_cpu_time(limit, usage)) {
    exit.detail = "it had used up its limit of " + std::to_string(limit.rlim_max) +
                  " s of CPU time (ulimit -t)";
  } else if (exit.by_signal && info.si_status == SIGKILL && !rank.is_killed_by_us) {
    const KillReport report = memory_.explain(rank.pid, usage.ru_maxrss);
    exit.out_of_memory = report.is_out_of_memory;
    exit.detail = report.detail;
  } else if (exit.by_signal && passed_.has_ever(info.si_status)) {
    exit.detail =
        "the job was sent this signal, which goes to all ranks, and the program has no "
        "handler for it";
  }
  if (exit.by_signal && !rank.has_run) {
    exit.detail = "before its program ran" + (exit.detail.empty() ? "" : "; " + exit.detail);
  }
  return exit;
}

void Agent::tell_when_all_exited() {
  if (!started_ || told_all_exited_) return;
  for (const Rank& rank : ranks_) {
    if (rank.is_waiting || rank.is_running) return;
  }
  told_all_exited_ = true;
  channel_->send(AgentMessage::kAllExited, "");
}

// For the launcher to show. Nothing waits for a reader; a pipe that is ready has room for this.
void Agent::say(const std::string& message) {
  pollfd room{STDERR_FILENO, POLLOUT, 0};
  if (poll(&room, 1, 0) != 1) return;
  const std::string text = kAgentSays + message + "\n";
  [[maybe_unused]] const auto written = write(STDERR_FILENO, text.data(), text.size());
}

void Agent::end(int exit_code) {
  exit_code_ = exit_code;
  signal_ranks(SIGKILL);
  group_.kill_all();
  relay_.close(Deadline::after(kTunnelTime));
  const auto left = end_all_children(Deadline::after(std::chrono::milliseconds(1500)));
  for (const pid_t pid : left) {
    const std::string why = why_left(pid);
    if (!why.empty()) say(why + "; it is left behind");
  }
  mpi_.reset();  // its folders, now that nobody writes into them
  preload_.reset();
  tell_supervisor(std::chrono::milliseconds(0));  // nothing here is worth waiting for
  io_.stop();
}

}  // namespace chainmail::launch
