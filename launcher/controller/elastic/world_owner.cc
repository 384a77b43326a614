// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/world_owner.h"

#include <signal.h>

#include <algorithm>
#include <asio/post.hpp>
#include <utility>
#include <variant>

#include "base/membership/trace.h"
#include "launcher/controller/elastic/machine/world_setup.h"

namespace chainmail::launch {
namespace {

using internal::BodyWriter;
using membership::EventKind;
using membership::HostId;
using membership::HostTable;
using membership::WorldMachine;

// From a rank's start to its word that it is a member. Python takes its time to load libraries;
// data sets that are prepared first are why silence alone has no consequence.
constexpr std::chrono::milliseconds kSilence{60000};

constexpr char kWhatItMeans[] =
    ": this program does not call create_elastic_job (chainmail.elastic.Job in Python), so its "
    "ranks are started anew as a job of fixed size, and again whenever hosts come, go or fail, "
    "each time "
    "from the program's own checkpoint; with create_elastic_job those that stay would go on, and "
    "no step would be lost";

// Beside the system's file there is no log to go on with.
WorldLog::Start start_of(const Options& options, const HostSet& hosts) {
  return options.elastic.resumes && !hosts.is_systems ? WorldLog::Start::kResume
                                                      : WorldLog::Start::kNew;
}

}  // namespace

WorldOwner::WorldOwner(JobState& job, RankChannel& channel, AgentStarts& starts,
                       const HostSet& hosts, Callbacks callbacks)
    : job_(job),
      channel_(channel),
      callbacks_(std::move(callbacks)),
      first_hosts_(hosts.hosts),
      log_(hosts.own_file(), start_of(job.options, hosts),
           [this](const std::string& line) { job_.say(line); }),
      machine_(world_options(job.options), resume_point(log_.past(), job.options)),
      timers_(job.io, [this](const auto& event) { events_.give(event); }),
      watch_(job, machine_, hosts,
             {.on_hosts = [this](const auto& now) { on_hosts(now); },
              .on_there = [this](const auto& name) { gate_.on_there(name); },
              .on_missing = [this](const auto& name) { gate_.on_missing(name); }}),
      gate_(job, starts, hosts_, watch_.folder(), watch_.folder_name(),
            {.make_order = callbacks_.make_order,
             .on_ended = [this](const auto& event) { events_.give(event); },
             .on_host_lost =
                 [this](HostId host, const std::string& cause) {
                   events_.give(lost_in_gate(host, cause, starts_.has_members(host)));
                 },
             .make_file = [this](const auto& name) { return watch_.make_file(name); },
             .is_unmade = [this](const auto& name) { return watch_.is_unmade(name); },
             .note = [this](const auto& words) { log_.note(words); }}),
      starts_(job, channel, starts, hosts_, {callbacks_.make_order, callbacks_.on_no_agent}),
      events_(job.io, [this](const auto& event) { handle(event); }),
      straggler_timer_(job.io),
      silence_(job.io, [this](const std::string& cause, std::optional<Failure> failure) {
        turn_fixed(cause, std::move(failure));
      }) {}

void WorldOwner::start() {
  job_.events.trace(membership::trace_birth(world_options(job_.options),
                                            resume_point(log_.past(), job_.options)));
  read(first_hosts_);
  watch_.start();
}

void WorldOwner::stop() {
  events_.close();
  watch_.stop();
  timers_.stop();
  gate_.stop();
  straggler_timer_.cancel();
  silence_.end();
}

const membership::World* WorldOwner::running_world() const {
  const bool is_running = !events_.is_closed() && machine_.phase() == WorldMachine::Phase::kRunning;
  return is_running ? &machine_.world() : nullptr;
}

void WorldOwner::read(const std::vector<Host>& hosts) {
  membership::HostsRead lines = hosts_.read(hosts);
  const std::string excess = why_slots_stay_empty(lines, job_.options);
  if (!excess.empty() && !has_told_excess_) job_.say("launcher: " + excess);
  has_told_excess_ = !excess.empty();
  events_.give(std::move(lines));
}

void WorldOwner::on_hosts(const std::vector<Host>& hosts) {
  if (events_.is_closed()) return;
  const bool is_held = silence_.is_there() && changes_size(machine_.hosts(), hosts, job_.options);
  if (!is_held) return read(hosts);
  are_hosts_held_ = true;
  silence_.change("the hosts have changed");
}

void WorldOwner::listen_for_silence() {
  if (job_.ranks.size() == 0) return;
  const auto asked = job_.options.start_timeout.value_or(kSilence);
  silence_.begin(asked.count() == 0 ? kSilence : std::min(asked, kSilence));
}

void WorldOwner::on_first_word() {
  silence_.end();
  if (events_.is_closed()) return;
  give_held();
  starts_.release();
}

void WorldOwner::hold(const membership::WorldEvent& event, std::string message) {
  events_held_.push_back(event);
  if (!message.empty()) messages_held_.push_back(std::move(message));
}

void WorldOwner::give_held() {
  for (const std::string& message : std::exchange(messages_held_, {})) job_.say(message);
  for (auto& event : std::exchange(events_held_, {})) events_.give(std::move(event));
  if (std::exchange(are_hosts_held_, false)) read(watch_.latest().hosts);
}

void WorldOwner::on_fixed_size(std::uint32_t rank) {
  if (events_.is_closed()) return;
  if (has_ready_) {
    return expel(rank,
                 "asks for a communicator of fixed size, while others have come to "
                 "create_elastic_job");
  }
  turn_fixed(job_.ranks.name_of(rank) + " has asked for a communicator of fixed size");
}

void WorldOwner::turn_fixed(const std::string& cause, std::optional<Failure> failure) {
  has_turned_fixed_ = true;
  watch_.refuse_commands("the ranks of the job are being started anew; try again in a moment");
  stop();
  job_.events.record("fixed_size", {{"cause", cause}});
  callbacks_.on_fixed_size(cause + kWhatItMeans, std::move(failure));
}

void WorldOwner::on_hello() {
  if (events_.is_closed()) return;
  gate_.on_hello();
  starts_.on_hello();
  listen_for_silence();
}

bool WorldOwner::on_frame(std::uint32_t node, const internal::Frame& frame) {
  return gate_.on_frame(node, frame);
}

void WorldOwner::on_agent_lost(std::uint32_t node, const std::string& cause) {
  const AgentLink* const link = job_.agents[node].link.get();
  const bool was_there = link != nullptr && link->hello();
  job_.agents.retire(node);
  if (is_finished_) {
    for (std::uint32_t rank = 0; rank < job_.ranks.size(); ++rank) {
      if (job_.ranks[rank].node != node || !is_of_last_world(rank)) continue;
      return callbacks_.on_late_failure({std::nullopt, exit_code::kLauncherError,
                                         "lost host " + job_.agents[node].host + ": " + cause,
                                         EndKind::kHostLost});
    }
  }
  if (events_.is_closed()) return;
  const std::string text = (was_there ? "lost host " + job_.agents[node].host + ": " : "") + cause;
  const std::string in_short = cause.substr(0, cause.find('\n'));
  const auto host = starts_.host_of(node);
  if (host && was_there && silence_.is_there()) {
    hold(membership::HostLost{*host, in_short}, "launcher: " + text);
    return silence_.fail({std::nullopt, exit_code::kLauncherError, text, EndKind::kHostLost});
  }
  job_.say("launcher: " + text);
  if (gate_.on_agent_lost(node, in_short)) return;
  starts_.forget(node);
  if (!host) return;
  if (!starts_.has_members(*host)) return events_.give(membership::HostLost{*host, in_short});
  // Others there are fine: a login that was refused, a remote shell that was killed.
  for (std::uint32_t rank = 0; rank < job_.ranks.size(); ++rank) {
    if (job_.ranks[rank].node != node) continue;
    events_.give(
        membership::MemberEnded{rank, exit_code::kLauncherError, "its agent is lost: " + in_short});
  }
}

bool WorldOwner::on_leaving(std::uint32_t node) {
  const auto host = hosts_.find(job_.agents[node].host);
  if (!host || (events_.is_closed() && !has_turned_fixed_ && !is_finished_)) return false;
  leaving_.insert(*host);
  if (!is_anybody_left()) return false;
  log_.note("Got notice that host:" + job_.agents[node].host + " is about to end");
  if (events_.is_closed()) return true;
  const membership::HostLeaving leaving{*host};
  if (silence_.is_there()) {
    hold(leaving, "");
    silence_.change("a host is about to end");
  } else {
    events_.give(leaving);
  }
  return true;
}

// On a host that nobody has told to end.
bool WorldOwner::is_anybody_left() const {
  if (has_turned_fixed_) {
    const std::vector<std::string> names = leaving();
    return std::ranges::any_of(watch_.latest().hosts, [&](const Host& host) {
      return std::ranges::find(names, host.name) == names.end();
    });
  }
  const auto stays = [this](std::optional<HostId> host) {
    return host && !leaving_.contains(*host);
  };
  const bool has_rank = std::ranges::any_of(job_.ranks, [&](const RankTable::Rank& rank) {
    return !rank.is_gone && stays(starts_.host_of(rank.node));
  });
  if (has_rank || is_finished_) return has_rank;
  if (std::ranges::any_of(gate_.hosts(), stays)) return true;
  for (HostId host = 0; host < machine_.hosts().size(); ++host) {
    if (stays(host) && starts_anew(host)) return true;
  }
  return false;
}

// Its ranks have crashed, and it only waits before it starts others; the gate of one that is out of
// reach is closed.
bool WorldOwner::starts_anew(HostId id) const {
  const HostTable::Host& host = machine_.hosts()[id];
  return host.is_cooling && host.slots() > 0 && host.gate == HostTable::Gate::kOpen;
}

std::vector<std::string> WorldOwner::leaving() const {
  std::vector<std::string> names;
  for (const HostId host : leaving_) names.push_back(hosts_[host].asked.name);
  return names;
}

void WorldOwner::on_said(std::uint32_t rank, const membership::MemberMessage& message) {
  has_ready_ = has_ready_ || std::holds_alternative<membership::Ready>(message);
  events_.give(membership::MemberSaid{rank, message});
}

void WorldOwner::on_shard_time(std::uint32_t rank, std::chrono::microseconds time) {
  if (running_world() == nullptr) return;
  auto times = balance_.on_time(machine_.world(), rank, time);
  if (times.empty()) return;
  const auto slowest = std::max_element(times.begin(), times.end());
  const auto fastest = std::min_element(times.begin(), times.end());
  const membership::MemberId slow =
      machine_.world().members[static_cast<std::size_t>(slowest - times.begin())];
  log_.note("Moving shards: one takes " + std::to_string(*slowest) + " us on " +
            job_.ranks.name_of(slow) + ", " + std::to_string(*fastest) + " us on the fastest");
  events_.give(membership::Rebalance{machine_.world().generation, std::move(times)});
}

void WorldOwner::on_ended(std::uint32_t rank, int code, const std::string& cause) {
  if (is_finished_ && code != 0 && is_of_last_world(rank)) {
    return callbacks_.on_late_failure({rank, code, cause});
  }
  if (events_.is_closed()) return;
  const auto reason = ended_.find(rank);
  const bool is_told = reason != ended_.end() && code == exit_code::kSignalBase + SIGKILL;
  const LastLines& lines = job_.ranks[rank].last_error_lines;
  const std::string message =
      "launcher: " + job_.ranks.name_of(rank) + " " +
      (is_told
           ? "has been ended by the launcher" + reason->second
           : cause + (lines.is_empty() ? "" : "; the last lines of its stderr:" + lines.quoted()));
  // What is known besides of a kill was said, and is too long for the log.
  on_member_gone(
      {rank, code,
       is_told ? "ended by the launcher" + reason->second : cause.substr(0, cause.find(": "))},
      code == 0 ? "" : message);
  look_for_false_start(code, job_.ranks.name_of(rank) + " " + cause);
  if (silence_.is_there()) return;
  // It has been said, and there may be any number of members.
  ended_.erase(rank);
  job_.ranks[rank].last_error_lines = {};
}

void WorldOwner::on_member_gone(const membership::MemberEnded& ended, const std::string& message) {
  if (ended.code == 0 || !silence_.is_there()) {
    if (!message.empty()) job_.say(message);
    return events_.give(ended);
  }
  hold(ended, message);
  silence_.fail({ended.member, ended.code, ended.cause});
}

void WorldOwner::on_not_started(std::uint32_t rank, int code, const std::string& cause) {
  if (events_.is_closed()) return;
  on_member_gone({rank, code, cause}, "");
  look_for_false_start(code, cause);
}

// A job whose program cannot be run, or refuses its arguments, would try that until its time limit;
// and one whose program knows nothing of worlds, and ends well, for ever.
void WorldOwner::look_for_false_start(int code, const std::string& cause) {
  if (events_.is_closed() || !machine_.world().members.empty()) return;
  has_ended_well_ = has_ended_well_ || code == 0;
  if (!false_start_ || false_start_->exit_code == 0) {
    false_start_ = Failure{std::nullopt, code, cause};
  }
  if (false_start_->exit_code == 0 && has_ready_) {
    false_start_ = Failure{std::nullopt, exit_code::kLauncherError,
                           cause + " before it had come to run() of its elastic job"};
  }
  const bool is_anybody_left = std::any_of(job_.ranks.begin(), job_.ranks.end(),
                                           [](const auto& rank) { return !rank.is_gone; });
  // The others may be enough.
  if (is_anybody_left) return;
  // A program of which some ranks end well can be run: those that have failed are begun anew.
  if (silence_.is_there() && has_ended_well_ && silence_.has_failure()) return silence_.cut_short();
  give_held();
  // After the events that wait, so that the log is whole.
  asio::post(job_.io, [this] {
    if (events_.is_closed()) return;
    if (false_start_->exit_code != 0) job_.say("launcher: no rank has come to create_elastic_job");
    is_finished_ = false_start_->exit_code == 0;
    end(false_start_->exit_code, false_start_->cause);
  });
}

void WorldOwner::on_stopped(std::uint32_t rank, bool is_stopped) {
  if (is_stopped && !events_.is_closed()) {
    job_.say("launcher: " + job_.ranks.name_of(rank) +
             " has been stopped by a signal; unless it continues within 4 s, the others go on "
             "without it");
  }
  events_.give(membership::MemberStopped{rank, is_stopped});
}

void WorldOwner::on_stalled(std::uint32_t rank, const std::string& cause) {
  // Who was in a world before may wait for the next one.
  if (machine_.world().rank_of(rank)) expel(rank, "has stalled: " + cause);
}

void WorldOwner::expel(std::uint32_t rank, const std::string& cause) {
  if (events_.is_closed()) return;
  job_.say("launcher: " + job_.ranks.name_of(rank) + " " + cause + ": it is ended");
  ended_[rank] = ": it " + cause;
  act(membership::EndMember{rank});
}

void WorldOwner::handle(const membership::WorldEvent& event) {
  membership::WorldActions actions;
  const WorldMachine::Phase before = machine_.phase();
  machine_.on(event, actions);
  const bool begins_to_wait =
      before != WorldMachine::Phase::kWaiting && machine_.phase() == WorldMachine::Phase::kWaiting;
  if (begins_to_wait) say_that_it_waits();
  job_.events.trace(membership::trace_line(event, actions));
  carry_out(actions);
}

void WorldOwner::say_that_it_waits() {
  const membership::WorldOptions options = world_options(job_.options);
  job_.say("launcher: fewer ranks are left than the " + std::to_string(options.sizes.min) +
           " that --elastic asks for: the job waits for hosts, at most " +
           std::to_string(options.elastic_timeout.count() / 1000) + " s (--elastic-timeout)");
}

void WorldOwner::carry_out(const membership::WorldActions& actions) {
  wanted_.clear();
  for (const membership::WorldAction& action : actions) {
    std::visit([this](const auto& one) { act(one); }, action);
  }
  if (events_.is_closed() || wanted_.empty()) return;
  starts_.start(wanted_, silence_.is_there());
  // Ranks that the program has not asked for would find others numbered otherwise.
  if (silence_.is_there()) silence_.change("the hosts have changed");
}

void WorldOwner::act(const membership::Tell& action) {
  membership::LauncherWord word{action.message, {}};
  if (const auto* announced = std::get_if<membership::NewWorld>(&action.message)) {
    // Of the one before there may be members that have not heard of this one.
    const membership::Generation generation = announced->world->generation;
    if (std::exchange(announced_, generation) != generation && generation > 2) {
      channel_.forget_world(generation - 2);
    }
    const auto& hosts = announced->world->hosts;
    for (const HostId host : std::set<HostId>(hosts.begin(), hosts.end())) {
      word.hosts.push_back({host, hosts_[host].asked.name, hosts_[host].addresses});
    }
  }
  try {
    channel_.tell_member(action.to, word);
  } catch (const InvalidArgument&) {  // it is too long
    end(exit_code::kLauncherError,
        "a world of " + std::to_string(machine_.world().members.size()) +
            " ranks is more than a message can hold: use a smaller MAX of --elastic");
  }
}

void WorldOwner::act(const membership::StartMember& action) {
  log_.note("Launching worker node at ip: " + hosts_[action.host].asked.name);
  leaving_.erase(action.host);
  wanted_.push_back(action);
}

void WorldOwner::act(const membership::EndMember& action) {
  if (job_.ranks[action.member].is_gone) return;
  if (starts_.cancel(action.member)) {
    job_.ranks[action.member].is_gone = true;
    job_.output->end_rank(action.member);
    events_.give(membership::MemberEnded{action.member, exit_code::kSignalBase + 9,
                                         "ended before it was started"});
    return;
  }
  ended_.try_emplace(action.member);
  job_.agents.send(job_.ranks[action.member].node, AgentMessage::kEndRank,
                   BodyWriter().u32(action.member).take());
}

void WorldOwner::act(const membership::EventRecord& action) {
  job_.events.record(action);
  if (action.kind == EventKind::kLastWill) saved_step_ = action.step;
  if (action.kind == EventKind::kMemberDraining) {
    log_.note("Got removing line for host:" + action.address);
  }
}

void WorldOwner::act(const membership::EndJob& action) {
  is_finished_ = action.code == 0;
  end(action.code,
      action.cause + (!saved_step_ ? ""
                                   : "; the state after step " + std::to_string(*saved_step_) +
                                         " is saved: the same command goes on from there"));
  if (is_finished_) end_stragglers();
}

void WorldOwner::end(int code, const std::string& cause) {
  stop();
  callbacks_.on_end(code, cause);
}

// Without a world, as a program has it that knows of none: of all.
bool WorldOwner::is_of_last_world(std::uint32_t rank) const {
  const membership::World& world = machine_.world();
  return world.members.empty() || world.rank_of(rank);
}

// Spares, and those that were told to leave before, hold nobody up.
void WorldOwner::end_stragglers() {
  straggler_timer_.expires_after(elastic_grace(job_.options));
  straggler_timer_.async_wait([this](const asio::error_code& error) {
    if (error) return;
    for (std::uint32_t rank = 0; rank < job_.ranks.size(); ++rank) {
      if (is_of_last_world(rank)) continue;
      act(membership::EndMember{rank});
    }
  });
}

}  // namespace chainmail::launch
