// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/membership.h"

#include <signal.h>

#include <algorithm>
#include <asio/steady_timer.hpp>
#include <memory>
#include <utility>

#include "launcher/controller/state/late_timer.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::Frame;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A stopped rank holds all others up; a debugger or a suspended machine gets this long.
constexpr milliseconds kStopLimit{4000};
// Without --stall-timeout this is said, and nothing done.
constexpr milliseconds kStallNotice = std::chrono::minutes(10);
constexpr milliseconds kStallGrace{5000};

std::string stop_limit_text() { return std::to_string(kStopLimit.count() / 1000) + " s"; }

}  // namespace

Membership::Membership(JobState& job, RankChannel& channel, Shutdown& shutdown,
                       std::function<void(std::uint32_t rank)> on_gone)
    : job_(job),
      channel_(channel),
      shutdown_(shutdown),
      on_gone_(std::move(on_gone)),
      stalls_(job.ranks.size()) {}

void Membership::on_started(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t rank = job_.ranks.checked(node, body.u32());
  EventLog::Members members = job_.ranks.about(rank);
  members["pid"] = body.u32();
  const std::string cpus = body.text();
  members["processors"] = cpus;
  job_.events.record("rank_started", members);
  if (!std::exchange(job_.ranks[rank].has_started, true)) {
    ++started_;
    look_for_all_started();
  }
  if (!job_.options.report_bindings) return;
  job_.say("launcher: " + job_.ranks.name_of(rank) +
           (cpus.empty() ? " is not bound" : " is bound to processors " + cpus));
}

void Membership::look_for_all_started() {
  if (all_started_at_ || started_ == 0 || started_ + not_started_ < job_.ranks.size()) return;
  all_started_at_ = steady_clock::now();
  if (on_all_started_) on_all_started_();
}

// False when it was gone before.
bool Membership::take_out(std::uint32_t rank) {
  if (std::exchange(job_.ranks[rank].is_gone, true)) return false;
  job_.ranks[rank].stopped_since.reset();
  stalls_.forget(rank);
  channel_.forget(rank);
  job_.output->end_rank(rank);
  on_gone_(rank);
  if (!job_.ranks[rank].has_started) ++not_started_;
  look_for_all_started();
  return true;
}

void Membership::lose(std::uint32_t rank, const std::string& cause) {
  channel_.tell_lost(rank, cause);
  EventLog::Members members = job_.ranks.about(rank);
  members["cause"] = cause;
  job_.events.record("rank_lost", members);
}

void Membership::on_exited(std::uint32_t node, const RankExit& exit) {
  const std::uint32_t rank = job_.ranks.checked(node, exit.rank);
  if (!take_out(rank)) return;
  EventLog::Members members = job_.ranks.about(rank);
  members[exit.by_signal ? "signal" : "code"] = exit.value;
  if (!exit.detail.empty()) members["detail"] = exit.detail;
  job_.events.record(exit.out_of_memory ? "rank_out_of_memory" : "rank_exited", members);
  const std::string cause = describe(exit);
  channel_.list_ended(rank, cause);
  if (exit.value != 0) lose(rank, cause);
  if (fates_) return fates_->on_ended(rank, code_of(exit), cause);
  if (exit.value == 0) return;
  // What the launcher's own SIGTERM or SIGKILL has ended says nothing about the failure before.
  const Shutdown::Phase phase = shutdown_.phase();
  const bool is_ended_by_us =
      exit.by_signal && (exit.value == SIGTERM || exit.value == SIGKILL) &&
      (phase == Shutdown::Phase::kTerminating || phase == Shutdown::Phase::kKilling);
  if (!is_ended_by_us || !shutdown_.has_failed()) shutdown_.fail({rank, code_of(exit), cause});
}

void Membership::on_not_started(std::uint32_t rank, int code, const std::string& cause) {
  if (!take_out(rank)) return;
  channel_.list_ended(rank, cause);
  if (fates_) fates_->on_not_started(rank, code, cause);
}

void Membership::on_stopped(std::uint32_t node, const Frame& frame) {
  BodyReader body(frame.body);
  const std::uint32_t number = job_.ranks.checked(node, body.u32());
  RankTable::Rank& rank = job_.ranks[number];
  const bool is_stopped = body.u8() != 0;
  job_.events.record(is_stopped ? "rank_stopped" : "rank_continued", job_.ranks.about(number));
  if (fates_) return fates_->on_stopped(number, is_stopped);
  if (!is_stopped) {
    rank.stopped_since.reset();
    return;
  }
  if (!shutdown_.is_running() || rank.is_gone) return;
  const auto since = steady_clock::now();
  rank.stopped_since = since;
  job_.say("launcher: " + job_.ranks.name_of(number) +
           " has been stopped by a signal; unless it continues, the job ends in " +
           stop_limit_text());
  give_up_stopped(number, since);
}

// Later, if it still stands then.
void Membership::give_up_stopped(std::uint32_t rank, Time since) {
  const auto when = std::max(since + kStopLimit, steady_clock::now());
  auto timer = std::make_shared<asio::steady_timer>(job_.io, when);
  timer->async_wait([this, timer, rank, since, when](const asio::error_code& error) {
    if (error || !shutdown_.is_running() || job_.ranks[rank].stopped_since != since) return;
    if (is_late(when)) return give_up_stopped(rank, since);
    job_.ranks[rank].stopped_since.reset();
    const std::string cause = "stopped by a signal for more than " + stop_limit_text();
    lose(rank, cause);
    shutdown_.fail({rank, exit_code::kSignalBase + SIGSTOP, "has been " + cause});
  });
}

void Membership::on_step(std::uint32_t rank, const Progress& progress) {
  most_progress_.steps = std::max(most_progress_.steps, progress.steps);
  most_progress_.operations = std::max(most_progress_.operations, progress.operations);
  stalls_.update(rank, progress, steady_clock::now());
}

void Membership::check_progress(bool was_late) {
  if (!shutdown_.is_running()) return;
  const auto now = steady_clock::now();
  const membership::World* const world = fates_ ? fates_->world() : nullptr;
  const membership::Generation generation = world != nullptr ? world->generation : 0;
  const bool is_new = std::exchange(checked_world_, generation) != generation;
  if (was_late || is_new || (fates_ && world == nullptr)) return stalls_.start_anew(now);
  // Spares and newcomers have nothing to do.
  const auto counts = [world](std::uint32_t rank) {
    return world == nullptr || world->rank_of(rank).has_value();
  };
  const auto stall = stalls_.find(now, job_.options.stall_timeout.value_or(kStallNotice), counts);
  if (!stall) {
    has_told_stall_ = false;
  } else if (job_.options.stall_timeout) {
    end_stall(*stall);
  } else if (!std::exchange(has_told_stall_, true)) {
    job_.events.record("stalled", {{"cause", stall->text}});
    job_.say("launcher: " + job_.ranks.names_of(stall->culprits) + ": " + stall->text +
             (stall->culprits.empty() ? job_.ranks.gone_text() : "") +
             "; the job goes on, --stall-timeout TIME would end it");
  }
}

void Membership::end_stall(const Stall& stall) {
  job_.events.record("stalled", {{"cause", stall.text}});
  if (stall.culprits.empty()) {
    return shutdown_.stop_for("all ranks: " + stall.text + job_.ranks.gone_text(),
                              exit_code::kTimeLimit, kStallGrace, EndKind::kTimeLimit);
  }
  if (fates_) {
    for (const std::uint32_t rank : stall.culprits) fates_->on_stalled(rank, stall.text);
    return;
  }
  for (const std::uint32_t rank : stall.culprits) lose(rank, "stalled: " + stall.text);
  shutdown_.fail({stall.culprits.front(), exit_code::kTimeLimit, "has stalled: " + stall.text});
}

void Membership::on_host_lost(std::uint32_t node, const std::string& reason) {
  shutdown_.on_host_lost(node);
  for (std::uint32_t rank = 0; rank < job_.ranks.size(); ++rank) {
    if (job_.ranks[rank].node != node || !take_out(rank)) continue;
    channel_.list_ended(rank, "was lost with its host: " + reason);
    lose(rank, "host lost: " + reason);
  }
  if (fates_) return fates_->on_host_lost(node, reason);
  shutdown_.fail(
      {std::nullopt, exit_code::kLauncherError,
       "lost host " + job_.agents[node].host + ": " + reason + job_.agents.children_text(node),
       EndKind::kHostLost});
  job_.agents.lose_children_of(node);
}

}  // namespace chainmail::launch
