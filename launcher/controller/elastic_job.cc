// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What Controller does for an elastic job alone.

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/controller/controller.h"

namespace chainmail::launch {

using internal::BodyWriter;

void Controller::prepare_elastic() {
  job_.options.elastic.is_fixed ? prepare_fixed() : prepare_world();
}

void Controller::prepare_world() {
  world_ = std::make_unique<WorldOwner>(
      job_, channel_, *starts_, hosts_,
      WorldOwner::Callbacks{
          .make_order = [this](std::uint32_t node) { return orders_.without_ranks(node); },
          .on_no_agent = [this](std::uint32_t node,
                                const std::string& cause) { on_member_lost(node, cause); },
          .on_end = [this](int code, const std::string& cause) { on_world_end(code, cause); },
          .on_late_failure = [this](Failure failure) { shutdown_.fail(std::move(failure)); },
          .on_fixed_size =
              [this](const std::string& cause, std::optional<Failure> failure) {
                on_fixed_size(cause, std::move(failure));
              }});
  members_.decide_by(ElasticFates{
      .on_ended = [this](std::uint32_t rank, int code,
                         const std::string& cause) { world_->on_ended(rank, code, cause); },
      .on_not_started =
          [this](std::uint32_t rank, int code, const std::string& cause) {
            world_->on_not_started(rank, code, cause);
          },
      .on_stopped = [this](std::uint32_t rank,
                           bool is_stopped) { world_->on_stopped(rank, is_stopped); },
      .on_stalled = [this](std::uint32_t rank,
                           const std::string& cause) { world_->on_stalled(rank, cause); },
      .on_host_lost = [this](std::uint32_t node,
                             const std::string& cause) { world_->on_agent_lost(node, cause); },
      .world = [this] { return world_->running_world(); }});
}

void Controller::prepare_fixed() {
  fixed_ = std::make_unique<FixedOwner>(
      job_, channel_, *starts_, hosts_,
      FixedOwner::Callbacks{
          .make_order = [this](std::uint32_t node) { return orders_.without_ranks(node); },
          .on_no_agent = [this](std::uint32_t node,
                                const std::string& cause) { on_member_lost(node, cause); },
          .on_begun = [this] { shutdown_.end_with_ranks(); },
          .on_change =
              [this](const std::string& cause) {
                start_anew(cause + ": all ranks are ended, to be started anew");
              },
          .on_end = [this](int code, const std::string& cause) { on_world_end(code, cause); }});
}

// Agents of an elastic job are started as long as it runs.
void Controller::stop_starts() {
  if (shutdown_.was_interrupted()) observed_.enter(JobPhase::kStopping, shutdown_.end_reason());
  if (preparation_ && !shutdown_.is_running()) preparation_->stop();
  if (job_.options.elastic.is_on() && shutdown_.is_running()) return;
  starts_->stop();
  if (world_) world_->stop();
  if (fixed_) fixed_->stop();
}

void Controller::on_world_end(int code, const std::string& cause) {
  if (code == 0) return shutdown_.end_with_ranks();
  shutdown_.end(cause, code, elastic_grace(job_.options));
}

void Controller::on_fixed_size(const std::string& cause, std::optional<Failure> failure) {
  has_turned_fixed_ = true;
  if (!failure) return start_anew(cause);
  job_.say("launcher: " + cause);
  shutdown_.fail(std::move(*failure));
}

// No failure of anybody's: ranks get SIGTERM and --grace.
void Controller::start_anew(const std::string& cause) {
  if (!shutdown_.is_running()) return;
  starts_anew_ = true;
  for (std::uint32_t node = 0; node < job_.agents.size(); ++node) {
    if (job_.agents[node].all_exited) continue;
    job_.agents.send(node, AgentMessage::kSignalRanks, BodyWriter().u32(SIGTERM).take());
  }
  shutdown_.end(cause, exit_code::kSignalBase + SIGTERM, elastic_grace(job_.options));
}

std::optional<Controller::Restart> Controller::restart() const {
  if (!job_.options.elastic.is_on() || shutdown_.was_interrupted()) return std::nullopt;
  const bool is_fixed = fixed_ || has_turned_fixed_;
  const bool is_failure = is_fixed && !starts_anew_ && shutdown_.may_start_anew();
  if (!starts_anew_ && !is_failure) return std::nullopt;
  if (fixed_) {
    return Restart{is_failure, fixed_->latest_hosts(), fixed_->leaving(), fixed_->begun_at()};
  }
  return Restart{is_failure, world_->latest_hosts(), world_->leaving(), {}};
}

// To be started anew where nobody stays: then it ends.
bool Controller::on_leaving(std::uint32_t node) {
  const bool is_taken = world_ ? world_->on_leaving(node) : fixed_ && fixed_->on_leaving(node);
  if (!is_taken) starts_anew_ = false;
  return is_taken;
}

// Of an elastic job: its agent, or the hope to have one.
void Controller::on_member_lost(std::uint32_t node, const std::string& cause) {
  job_.agents[node].all_exited = true;
  if (fixed_ && !fixed_->has_ranks(node)) {
    fixed_->on_agent_lost(node, cause);
  } else {
    members_.on_host_lost(node, cause);
  }
  shutdown_.on_ranks_gone();
}

void Controller::on_member_exits(std::uint32_t node) {
  if (fixed_) {
    const bool is_anybody_left = std::any_of(job_.ranks.begin(), job_.ranks.end(),
                                             [](const auto& rank) { return !rank.is_gone; });
    // What is still being prepared is for nobody; and what has been, no rank.
    return is_anybody_left || !fixed_->has_ranks(node) ? void() : fixed_->stop();
  }
  // Where one could not be started, those after it were not either.
  for (std::uint32_t rank = 0; rank < job_.ranks.size(); ++rank) {
    if (job_.ranks[rank].node != node) continue;
    members_.on_not_started(rank, exit_code::kLauncherError,
                            "was not started, as another one on its host could not be");
  }
  job_.agents.retire(node);
}

}  // namespace chainmail::launch
