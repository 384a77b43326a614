// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The agent's start of its ranks. A rank's process enters its folder and looks for its program by
// itself, so that a file system that does not answer holds up nobody else.

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <asio/post.hpp>
#include <utility>

#include "base/error.h"
#include "launcher/agent/agent.h"
#include "launcher/job/options.h"

namespace chainmail::launch {
namespace {

using internal::BodyWriter;
using internal::UniqueFd;

constexpr std::uint32_t kStartsAtOnce = 16;

}  // namespace

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
  for (std::size_t local = 0; local < ranks_.size(); ++local) {
    ranks_[local].number = order_.ranks[local].rank;
    ranks_[local].is_waiting = true;
  }
  next_start_ = 0;
  try {
    shares_ = share_cores(cores_, static_cast<int>(order_.ranks.size()), order_.binding,
                          is_confined() ? 0 : static_cast<int>(order_.processors));
    start_mpi();
    memory_.look_at_own_group();
    start_some();
  } catch (const UsageError& error) {
    start_no_more();
    report_start_failure(order_.ranks.front().rank, 0, "bind", error.what());
    tell_when_all_exited();
  }
}

// A few, then whatever else is to be done: a thousand take longer than heartbeats may wait.
void Agent::start_some() {
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

void Agent::start_no_more() {
  for (Rank& rank : ranks_) rank.is_waiting = false;
  next_start_ = static_cast<std::uint32_t>(ranks_.size());
}

bool Agent::start_rank(std::uint32_t local) {
  const OrderedRank& ordered = order_.ranks[local];
  const OrderedProgram& program = order_.programs[ordered.program];
  const CpuShare& share = shares_[local];
  Rank& rank = ranks_[local];
  try {
    RankHandles handles = spawn_rank(
        {program.words, program.working_directory, environment_of(local, share), share.cpus,
         order_.ignored_signals, ordered.has_input,
         mpi_ ? mpi_->socket_for(rank.number) : UniqueFd(), descriptors_, group_.folder()});
    rank.pid = handles.pid;
    rank.is_waiting = false;
    rank.is_running = rank.is_starting = true;
    rank.started = std::chrono::steady_clock::now();
    memory_.look_at_start_of(rank.pid);
    follow_start(local, std::move(handles.start));
    connect_streams(rank, std::move(handles));
    return true;
  } catch (const SpawnError& error) {
    report_start_failure(rank.number, error.error(), "spawn", program.words.front());
  } catch (const SystemError& error) {  // of a socket for MPI
    report_start_failure(rank.number, error.native_code(), "spawn", program.words.front());
  }
  return false;
}

void Agent::follow_start(std::uint32_t local, UniqueFd news) {
  Rank& rank = ranks_[local];
  ByteStream::Callbacks callbacks;
  callbacks.on_bytes = [this, local](std::span<const std::byte> bytes) {
    ranks_[local].start.append(bytes);
  };
  callbacks.on_end = [this, local](const std::string&) { on_start_end(local); };
  rank.start_stream = ByteStream::make(io_, std::move(news), UniqueFd(), std::move(callbacks));
  rank.start_stream->start();
}

// Its program runs, or its process ends.
void Agent::on_start_end(std::uint32_t local) {
  Rank& rank = ranks_[local];
  if (!std::exchange(rank.is_starting, false)) return;
  rank.start_stream->close();
  const OrderedProgram& program = order_.programs[order_.ranks[local].program];
  if (rank.start.error() != 0) {
    const bool is_folder = rank.start.stage() == StartStage::kFolder;
    return report_start_failure(rank.number, rank.start.error(), is_folder ? "chdir" : "exec",
                                is_folder ? program.working_directory : program.words.front());
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
                                                 .text(cpu_list(shares_[local].cpus))
                                                 .take()));
}

// A file system that does not answer holds up nobody but who asks it.
void Agent::look_at_starts() {
  if (order_.start_timeout_ms == 0) return;
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::milliseconds limit(order_.start_timeout_ms);
  for (std::size_t local = 0; local < ranks_.size(); ++local) {
    Rank& rank = ranks_[local];
    if (!rank.is_starting || rank.is_late || now - rank.started < limit) continue;
    rank.is_late = true;
    const OrderedProgram& program = order_.programs[order_.ranks[local].program];
    switch (rank.start.stage()) {
      case StartStage::kFolder:
        report_start_failure(rank.number, 0, "late chdir", program.working_directory);
        break;
      case StartStage::kSearch:
        report_start_failure(rank.number, 0, "late search", rank.start.path());
        break;
      case StartStage::kExec:
        report_start_failure(rank.number, 0, "late exec", rank.start.path());
        break;
    }
  }
}

// Frames of many ranks in one go: each write wakes the controller, which takes its time from them.
void Agent::send_started() { channel_->send_raw(std::exchange(started_news_, {})); }

Environment Agent::environment_of(std::uint32_t local, const CpuShare& share) {
  Environment variables = current_environment();
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
  variables["CHAINMAIL_TERMINAL"] = std::to_string(order_.carriage_returns ? 1 : 0);
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

}  // namespace chainmail::launch
