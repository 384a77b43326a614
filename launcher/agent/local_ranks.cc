// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/local_ranks.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <iomanip>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "launcher/command_line/values.h"

namespace chainmail::launch {
namespace {

using internal::BodyWriter;
using internal::UniqueFd;

constexpr std::uint32_t kStartsAtOnce = 16;

// The kernel kills at the hard limit; the soft one, where it is lower, sends SIGXCPU. It counts the
// ticks that find the process running, which is another number than the exact time that it reports:
// 1 s was 0.82 s on a busy machine, and 4 s 3.80 s.
std::string explain_cpu_limit(const rlimit& limit, const rusage& usage) {
  if (limit.rlim_max == RLIM_INFINITY) return "";
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  const double used = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  const auto most = static_cast<double>(limit.rlim_max);
  if (used < most - std::max(0.4, most / 10)) return "";
  std::ostringstream text;
  text << "it had used up its limit of " << limit.rlim_max << " s of CPU time (ulimit -t)";
  if (used < most) {
    text << ", so it seems: " << std::fixed << std::setprecision(1) << used
         << " s, which the kernel counts less exactly";
  }
  return text.str();
}

}  // namespace

LocalRanks::LocalRanks(asio::io_context& io, const rlimit& descriptors, const ControlGroup& group,
                       Send send, SendRaw send_raw)
    : io_(io),
      descriptors_(descriptors),
      group_(group),
      send_(std::move(send)),
      send_raw_(std::move(send_raw)) {}

void LocalRanks::take(StartOrder order, const std::string& job_temp) {
  clear();
  order_ = std::move(order);
  job_temp_ = job_temp;
  ranks_.resize(order_.ranks.size());
  for (std::size_t local = 0; local < ranks_.size(); ++local) {
    ranks_[local].number = order_.ranks[local].rank;
    ranks_[local].is_waiting = true;
  }
  is_started_ = true;
}

void LocalRanks::start(StartOrder order, const std::vector<Core>& cores, MpiService* mpi,
                       const std::string& job_temp) {
  take(std::move(order), job_temp);
  mpi_ = mpi;
  cores_ = cores.size();
  try {
    shares_ = share_cores(cores, static_cast<int>(places()), order_.binding,
                          is_confined() ? 0 : static_cast<int>(order_.processors));
    oom_.look_at_own_group();
    start_some();
  } catch (const UsageError& error) {
    start_no_more();
    report_start_failure(order_.ranks.front().rank, 0, "host", error.what());
    tell_when_all_exited();
  }
}

void LocalRanks::refuse(StartOrder order, const std::string& why) {
  take(std::move(order), "");
  start_no_more();
  report_start_failure(order_.ranks.front().rank, 0, "host", why);
  tell_when_all_exited();
}

// Between how many ranks the cores are divided, and which share is whose.
std::uint32_t LocalRanks::places() const {
  return order_.places > 0 ? order_.places : static_cast<std::uint32_t>(order_.ranks.size());
}

std::uint32_t LocalRanks::place_of(std::uint32_t local) const {
  return order_.places > 0 ? order_.ranks[local].place : local;
}

void LocalRanks::clear() {
  ranks_.clear();
  next_start_ = 0;
  is_started_ = false;
  has_told_end_ = false;
}

// A few, then whatever else is to be done: a thousand take longer than heartbeats may wait.
void LocalRanks::start_some() {
  const std::size_t end = std::min<std::size_t>(next_start_ + kStartsAtOnce, ranks_.size());
  while (next_start_ < end) {
    if (!ranks_[next_start_].is_waiting) return;
    if (!start_rank(next_start_)) {
      start_no_more();
      break;
    }
    ++next_start_;
  }
  if (next_start_ < ranks_.size()) {
    asio::post(io_, [this] { start_some(); });
  }
  tell_when_all_exited();
}

void LocalRanks::start_no_more() {
  for (Rank& rank : ranks_) rank.is_waiting = false;
  next_start_ = static_cast<std::uint32_t>(ranks_.size());
}

bool LocalRanks::start_rank(std::uint32_t local) {
  const OrderedRank& ordered = order_.ranks[local];
  const CpuShare& share = shares_[place_of(local)];
  Rank& rank = ranks_[local];
  ExpandedProgram program;
  try {
    program = program_of(local, share);
  } catch (const SystemError& error) {
    report_start_failure(rank.number, error.native_code(), "host", error.what());
    return false;
  }
  rank.folder = program.working_directory;
  rank.program = program.words.front();
  try {
    RankHandles handles =
        spawn_rank({std::move(program.words), std::move(program.working_directory),
                    std::move(program.environment), share.cpus, order_.ignored_signals,
                    ordered.has_input, mpi_ ? mpi_->socket_for(rank.number) : UniqueFd(),
                    descriptors_, group_.folder(), order_.window});
    rank.pid = handles.pid;
    rank.is_waiting = false;
    rank.is_running = rank.is_starting = true;
    rank.started = std::chrono::steady_clock::now();
    oom_.look_at_start_of(rank.pid);
    follow_start(local, std::move(handles.start));
    connect_streams(rank, std::move(handles));
    if (rank.is_to_end) end(rank.number);
    return true;
  } catch (const SystemError& error) {
    drop_half_started(rank);
    report_start_failure(rank.number, error.native_code(), "spawn", rank.program);
  }
  return false;
}

// It has a process, but nobody hears it. reap() finds its end, however long that takes.
void LocalRanks::drop_half_started(Rank& rank) {
  if (!rank.is_running) return;
  rank.is_starting = false;
  if (rank.start_stream) rank.start_stream->close();
  kill(-rank.pid, SIGKILL);
}

void LocalRanks::follow_start(std::uint32_t local, UniqueFd news) {
  Rank& rank = ranks_[local];
  rank.start_stream = ByteStream::make(
      io_, std::move(news), {},
      {.on_bytes = [this, local](const auto& bytes) { ranks_[local].start.append(bytes); },
       .on_end = [this, local](const std::string&) { on_start_end(local); }});
  rank.start_stream->start();
}

// Its program runs, or its process ends.
void LocalRanks::on_start_end(std::uint32_t local) {
  Rank& rank = ranks_[local];
  if (!std::exchange(rank.is_starting, false)) return;
  rank.start_stream->close();
  if (rank.start.error() != 0) {
    const StartStage stage = rank.start.stage();
    const bool is_folder = stage == StartStage::kFolder;
    return report_start_failure(rank.number, rank.start.error(),
                                is_folder                     ? "chdir"
                                : stage == StartStage::kSpawn ? "spawn"
                                                              : "exec",
                                is_folder ? rank.folder : rank.program);
  }
  // Killed on its way: the news of its end says so.
  if (rank.start.stage() != StartStage::kExec || has_never_run_program(rank.pid)) return;
  rank.has_run = true;
  for (const int number : std::exchange(rank.early_signals, {})) kill(rank.pid, number);
  if (started_news_.empty()) {
    asio::post(io_, [this] { send_started(); });
  }
  started_news_ += internal::encode_frame(
      make_frame(AgentMessage::kRankStarted, BodyWriter()
                                                 .u32(rank.number)
                                                 .u32(static_cast<std::uint32_t>(rank.pid))
                                                 .text(cpu_list(shares_[place_of(local)].cpus))
                                                 .take()));
}

void LocalRanks::report_start_failure(std::uint32_t rank, int error, const std::string& stage,
                                      const std::string& path) {
  send_started();
  send_(
      AgentMessage::kStartFailed,
      BodyWriter().u32(rank).u32(static_cast<std::uint32_t>(error)).text(stage).text(path).take());
}

void LocalRanks::check() {
  look_at_memory();
  // A file system that does not answer holds up nobody but who asks it.
  if (order_.start_timeout_ms == 0) return;
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::milliseconds limit(order_.start_timeout_ms);
  for (Rank& rank : ranks_) {
    if (!rank.is_starting || rank.is_late || now - rank.started < limit) continue;
    rank.is_late = true;
    const StartStage stage = rank.start.stage();
    if (stage == StartStage::kSpawn || stage == StartStage::kFolder) {
      report_start_failure(rank.number, 0, "late chdir", rank.folder);
    } else {
      report_start_failure(rank.number, 0,
                           stage == StartStage::kSearch ? "late search" : "late exec",
                           rank.start.path());
    }
  }
}

// Frames of many ranks in one go: each write wakes the controller, which takes its time from them.
void LocalRanks::send_started() { send_raw_(std::exchange(started_news_, {})); }

// Whatever the program's own say.
Environment LocalRanks::fixed_variables(std::uint32_t local) const {
  Environment variables;
  variables["RANK"] = std::to_string(order_.ranks[local].rank);
  variables["WORLD_SIZE"] = std::to_string(order_.world_size);
  variables["LOCAL_RANK"] = std::to_string(place_of(local));
  variables["LOCAL_WORLD_SIZE"] = std::to_string(places());
  variables["NODE_RANK"] = std::to_string(order_.node_rank);
  variables["CHAINMAIL_GENERATION"] = std::to_string(order_.generation);
  // Its stdout is a pty in any case; this says whether people watch it.
  variables["CHAINMAIL_TERMINAL"] = std::to_string(order_.carriage_returns ? 1 : 0);
  if (!job_temp_.empty()) {
    variables["CHAINMAIL_JOB_TEMP"] = job_temp_;
    variables["CHAINMAIL_NODE_GPUS"] = std::to_string(gpus_here("/dev"));
  }
  return variables;
}

ExpandedProgram LocalRanks::program_of(std::uint32_t local, const CpuShare& share) const {
  const OrderedRank& ordered = order_.ranks[local];
  Environment outside = current_environment();
  // Of a job around this one.
  outside.erase("CHAINMAIL_ELASTIC");
  outside.erase("CHAINMAIL_JOB_TEMP");
  ExpandedProgram program = expanded_program(order_.programs[ordered.program], std::move(outside),
                                             fixed_variables(local));
  Environment& variables = program.environment;
  // emplace keeps what the user set. Spinning OpenMP workers cost ten times the CPU time as soon
  // as ranks share cores.
  variables.emplace("OMP_NUM_THREADS", std::to_string(share.cores));
  variables.emplace("OMP_WAIT_POLICY", "passive");
  variables.erase("CHAINMAIL_JOB_FD");
  if (mpi_) {
    const bool is_crowded = places() > cores_;
    mpi_->add_variables(variables, ordered.rank, is_crowded);
  } else {
    drop_foreign_mpi(variables);
  }
  return program;
}

void LocalRanks::connect_streams(Rank& rank, RankHandles handles) {
  RankStreams::Callbacks callbacks;
  const std::uint32_t number = rank.number;
  callbacks.on_output = [this, number](std::uint8_t stream, std::string_view piece) {
    send_(AgentMessage::kOutput, BodyWriter().u32(number).u8(stream).text(piece).take());
  };
  callbacks.on_job_bytes = [this, number](std::string_view bytes) {
    if (listener_) return listener_(number, bytes);
    send_(AgentMessage::kRankBytes, BodyWriter().u32(number).text(bytes).take());
  };
  callbacks.on_input_taken = [this, number](bool more) {
    send_(AgentMessage::kInputTaken, BodyWriter().u32(number).u8(more ? 1 : 0).take());
  };
  rank.streams = std::make_unique<RankStreams>(
      io_, std::move(handles), RankStreams::Settings{order_.carriage_returns, order_.output_window},
      std::move(callbacks));
}

void LocalRanks::listen(std::function<void(std::uint32_t rank, std::string_view bytes)> listener) {
  listener_ = std::move(listener);
}

void LocalRanks::drop_output() {
  for (Rank& rank : ranks_) {
    if (rank.streams) rank.streams->drop_output();
  }
}

std::vector<std::uint32_t> LocalRanks::running() const {
  std::vector<std::uint32_t> numbers;
  for (const Rank& rank : ranks_) {
    if (rank.is_running) numbers.push_back(rank.number);
  }
  return numbers;
}

RankStreams* LocalRanks::streams_of(std::uint32_t number) {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(), [number](const Rank& rank) {
    return rank.streams && rank.number == number;
  });
  return found == ranks_.end() ? nullptr : found->streams.get();
}

// Of some ranks at a time, each in its turn: their files take up to 40 us a rank.
void LocalRanks::look_at_memory() {
  constexpr std::size_t kRanksAtATime = 64;
  for (std::size_t i = 0; i < std::min(kRanksAtATime, ranks_.size()); ++i) {
    next_look_ = (next_look_ + 1) % ranks_.size();
    const Rank& rank = ranks_[next_look_];
    if (rank.is_running) oom_.look(rank.pid);
  }
  oom_.look_at_machine();
}

void LocalRanks::signal_all(int number) {
  if (number == SIGTERM || number == SIGKILL) start_no_more();
  for (Rank& rank : ranks_) {
    if (!rank.is_running) continue;
    rank.is_killed_by_us = rank.is_killed_by_us || number == SIGKILL;
    kill(-rank.pid, number);
    // A stopped rank acts on nothing but SIGKILL until it continues.
    if (number == SIGTERM) kill(-rank.pid, SIGCONT);
  }
}

void LocalRanks::end(std::uint32_t number) {
  for (Rank& rank : ranks_) {
    if (rank.number != number) continue;
    rank.is_to_end = true;
    if (!rank.is_running) return;
    rank.is_killed_by_us = true;
    kill(-rank.pid, SIGKILL);
  }
}

// As under mpirun: what a rank has started is the rank's to tell. What has no program yet would die
// of it, or know nothing of it afterwards: it gets it when its program runs.
void LocalRanks::pass_signal(int number) {
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

void LocalRanks::reap() {
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
        send_(AgentMessage::kRankStopped, BodyWriter().u32(rank.number).u8(stopped).take());
        continue;
      }
      on_exit(rank, info);
    }
  }
  tell_when_all_exited();
}

bool LocalRanks::owns(pid_t pid) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [pid](const Rank& rank) { return rank.is_running && rank.pid == pid; });
}

void LocalRanks::on_exit(Rank& rank, const siginfo_t& info) {
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
  if (rank.streams) rank.streams->finish();
  // It was no rank yet.
  if (!rank.streams || rank.start.error() != 0) return oom_.forget(rank.pid);
  if (mpi_) mpi_->on_rank_exit(rank.number, info.si_code == CLD_EXITED && info.si_status == 0);
  send_(AgentMessage::kRankExited, encode_fields(exit_of(rank, info, limit, usage)));
  oom_.forget(rank.pid);
}

RankExit LocalRanks::exit_of(const Rank& rank, const siginfo_t& info, const rlimit& limit,
                             const rusage& usage) const {
  RankExit exit;
  exit.rank = rank.number;
  exit.by_signal = info.si_code != CLD_EXITED;
  exit.value = static_cast<std::uint32_t>(info.si_status);
  if (exit.by_signal && info.si_status == SIGKILL && !rank.is_killed_by_us) {
    const KillReport report = oom_.explain(rank.pid, usage.ru_maxrss);
    const std::string cpu_limit = explain_cpu_limit(limit, usage);
    exit.out_of_memory = report.is_out_of_memory;
    exit.detail = cpu_limit.empty() || report.is_out_of_memory ? report.detail : cpu_limit;
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

void LocalRanks::tell_when_all_exited() {
  if (!is_running()) return;
  for (const Rank& rank : ranks_) {
    if (rank.is_waiting || rank.is_running) return;
  }
  has_told_end_ = true;
  send_(AgentMessage::kAllExited, "");
}

void LocalRanks::set_window(const WindowSize& size) {
  order_.window = size;
  for (Rank& rank : ranks_) {
    if (rank.streams) rank.streams->set_window(size);
  }
}

void LocalRanks::set_reading(bool reading) {
  for (Rank& rank : ranks_) {
    if (rank.streams) rank.streams->set_reading(reading);
  }
}

void LocalRanks::write_all(const std::string& bytes, std::uint32_t except) {
  for (const Rank& rank : ranks_) {
    if (rank.number != except && rank.streams) rank.streams->write_job(bytes);
  }
}

}  // namespace chainmail::launch
