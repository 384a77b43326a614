// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What becomes of ranks and hosts: each change is recorded, told to the other ranks where it
// concerns them, and judged.

#include <signal.h>

#include <algorithm>
#include <asio/steady_timer.hpp>

#include "launcher/controller/controller.h"
#include "launcher/remote/rsh_command.h"
#include "launcher/remote/start_failure.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;
using internal::Frame;
using internal::JobMessage;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A stopped rank holds all others up; a debugger or a suspended machine gets this long.
constexpr milliseconds kStopLimit{4000};
// Without --stall-timeout this is said, and nothing done.
constexpr milliseconds kStallNotice = std::chrono::minutes(10);
constexpr milliseconds kStallGrace{5000};
// A timer that fires this late says that the launcher was held up itself: what came meanwhile has
// not been read yet.
constexpr milliseconds kLate{500};

}  // namespace

EventLog::Members Controller::about(std::uint32_t rank) const {
  return {{"rank", rank}, {"host", host_of(rank)}};
}

void Controller::on_rank_started(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t rank = checked_rank(node, body.u32());
  EventLog::Members members = about(rank);
  members["pid"] = body.u32();
  const std::string cpus = body.text();
  members["processors"] = cpus;
  events_.record("rank_started", members);
  if (!options_.report_bindings) return;
  output_->say("launcher: rank " + std::to_string(rank) + " on host " + host_of(rank) +
               (cpus.empty() ? " is not bound" : " is bound to processors " + cpus));
}

// The others learn of it at once: their collectives end with this news instead of a time limit.
void Controller::lose_rank(std::uint32_t rank, const std::string& cause) {
  tell_ranks(JobMessage::kNewsRankLost, rank,
             BodyWriter().u32(rank).text(host_of(rank)).text(cause).take());
  EventLog::Members members = about(rank);
  members["cause"] = cause;
  events_.record("rank_lost", members);
}

// For ranks that wait for this one and have not met it: a rank may end while others go on.
void Controller::list_ended(std::uint32_t rank, const std::string& cause) {
  try {
    store_.append(internal::kEndedRanksKey, internal::encode_ended({rank, host_of(rank), cause}));
  } catch (const StoreFull&) {
    // The job goes on; only its time limits tell then.
  }
}

void Controller::on_rank_exited(std::uint32_t node, const RankExit& exit) {
  const std::uint32_t number = checked_rank(node, exit.rank);
  Rank& rank = ranks_[number];
  if (std::exchange(rank.is_gone, true)) return;
  rank.stopped_since.reset();
  stalls_.forget(number);
  store_.forget(number);
  output_->end_rank(number);
  if (input_) input_->on_gone(number);
  EventLog::Members members = about(number);
  members[exit.by_signal ? "signal" : "code"] = exit.value;
  if (!exit.detail.empty()) members["detail"] = exit.detail;
  events_.record(exit.out_of_memory ? "rank_out_of_memory" : "rank_exited", members);
  const std::string cause = describe(exit);
  list_ended(number, cause);
  if (exit.value == 0) return;
  lose_rank(number, cause);
  // What the launcher's own SIGTERM or SIGKILL has ended says nothing about the failure before.
  const bool is_ended_by_us = exit.by_signal && (exit.value == SIGTERM || exit.value == SIGKILL) &&
                              (phase_ == Phase::kTerminating || phase_ == Phase::kKilling);
  if (!is_ended_by_us || !verdict_.failure()) fail({number, code_of(exit), cause});
}

void Controller::on_rank_stopped(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t number = checked_rank(node, body.u32());
  Rank& rank = ranks_[number];
  const bool is_stopped = body.u8() != 0;
  events_.record(is_stopped ? "rank_stopped" : "rank_continued", about(number));
  if (!is_stopped) {
    rank.stopped_since.reset();
    return;
  }
  if (phase_ != Phase::kRunning || rank.is_gone) return;
  const auto since = steady_clock::now();
  rank.stopped_since = since;
  output_->say("launcher: rank " + std::to_string(number) + " on host " + host_of(number) +
               " has been stopped by a signal; unless it continues, the job ends in " +
               std::to_string(kStopLimit.count() / 1000) + " s");
  give_up_stopped(number, since);
}

// Later, if it still stands then.
void Controller::give_up_stopped(std::uint32_t number, steady_clock::time_point since) {
  const auto when = std::max(since + kStopLimit, steady_clock::now());
  auto timer = std::make_shared<asio::steady_timer>(io_, when);
  timer->async_wait([this, timer, number, since, when](const asio::error_code& error) {
    if (error || phase_ != Phase::kRunning || ranks_[number].stopped_since != since) return;
    if (steady_clock::now() - when > kLate) return give_up_stopped(number, since);
    ranks_[number].stopped_since.reset();
    const std::string cause =
        "stopped by a signal for more than " + std::to_string(kStopLimit.count() / 1000) + " s";
    lose_rank(number, cause);
    fail({number, exit_code::kSignalBase + SIGSTOP, "has been " + cause});
  });
}

void Controller::on_step(std::uint32_t rank, const Frame& frame) {
  BodyReader body(frame.body);
  Progress progress;
  progress.steps = body.u64();
  progress.operations = body.u64();
  stalls_.update(rank, progress, steady_clock::now());
}

void Controller::check_progress(bool was_late) {
  if (phase_ != Phase::kRunning) return;
  const auto now = steady_clock::now();
  if (was_late) return stalls_.start_anew(now);
  const auto stall = stalls_.find(now, options_.stall_timeout.value_or(kStallNotice));
  if (!stall) {
    has_told_stall_ = false;
  } else if (options_.stall_timeout) {
    end_stall(*stall);
  } else if (!std::exchange(has_told_stall_, true)) {
    events_.record("stalled", {{"cause", stall->text}});
    output_->say("launcher: " + names_of(stall->culprits) + ": " + stall->text +
                 (stall->culprits.empty() ? ended_text() : "") +
                 "; the job goes on, --stall-timeout TIME would end it");
  }
}

void Controller::end_stall(const Stall& stall) {
  events_.record("stalled", {{"cause", stall.text}});
  if (stall.culprits.empty()) {
    return stop_for("all ranks: " + stall.text + ended_text(), exit_code::kTimeLimit, kStallGrace);
  }
  for (const std::uint32_t rank : stall.culprits) lose_rank(rank, "stalled: " + stall.text);
  fail({stall.culprits.front(), exit_code::kTimeLimit, "has stalled: " + stall.text});
}

// Of ranks that no longer run, if there are any: those that stand still may wait for them.
std::string Controller::ended_text() const {
  std::vector<std::uint32_t> ended;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].is_gone) ended.push_back(rank);
  }
  return ended.empty() ? "" : "; " + names_of(ended) + " ended before, with code 0";
}

// "rank 3 on host n2", "ranks 1 on host n1, 3 on host n2", "all ranks".
std::string Controller::names_of(const std::vector<std::uint32_t>& ranks) const {
  constexpr std::size_t kMost = 8;
  if (ranks.empty()) return "all ranks";
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]) + " on host " + host_of(ranks[i]);
  }
  return ranks.size() > kMost ? text + " and " + std::to_string(ranks.size() - kMost) + " more"
                              : text;
}

void Controller::on_agent_lost(std::uint32_t node, const std::string& reason) {
  const std::string& host = placement_.nodes[node].name;
  const AgentLink& link = *nodes_[node].link;
  if (!link.hello() && (start_again(node) || start_from_here(node))) return;
  const bool is_local = link.start().is_local();
  lost_local_agent_ = lost_local_agent_ || is_local;
  nodes_[node].all_exited = true;
  events_.record("host_lost", {{"host", host}, {"cause", reason}});
  if (!link.hello()) {
    StartFailure failure{placement_.nodes[node],
                         is_local ? std::vector<std::string>() : remote_shell_of(options_),
                         launcher_path_,
                         link.exit_text(),
                         link.exit_code(),
                         link.error_output(),
                         ""};
    if (options_.hosts == host) failure.hint = "if a file was meant: there is no file " + host;
    if (phase_ == Phase::kStarting) {
      is_refused_ = is_refused_ || !may_pass(link.error_output());
      add_start_failure(explain(failure));
    }
  } else {
    has_lost_host_ = true;
    for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].node != node || std::exchange(ranks_[rank].is_gone, true)) continue;
      stalls_.forget(rank);
      store_.forget(rank);
      output_->end_rank(rank);
      if (input_) input_->on_gone(rank);
      list_ended(rank, "was lost with its host: " + reason);
      lose_rank(rank, "host lost: " + reason);
    }
    fail({std::nullopt, exit_code::kLauncherError,
          "lost host " + host + ": " + reason + carried_text(node)});
    lose_carried_by(node);
  }
  end_if_all_exited();
}

}  // namespace chainmail::launch
