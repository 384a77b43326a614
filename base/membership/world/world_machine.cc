// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is heard, and what it means; world_hosts.cc starts and ends members, world_changes.cc makes
// worlds of them.

#include "base/membership/world/world_machine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/membership/digest.h"
#include "base/membership/seeded_bug.h"

namespace chainmail::membership {

WorldMachine::WorldMachine(const WorldOptions& options, const ResumePoint& resume)
    : options_(options),
      hosts_(options.first_size),
      next_member_(resume.next_member),
      next_sequence_(resume.next_sequence),
      lost_with_launcher_(resume.members),
      size_(static_cast<std::uint32_t>(resume.members.size())) {
  const SizeRange& sizes = options.sizes;
  if (sizes.min == 0 || sizes.multiple == 0 || sizes.fit(sizes.max) == 0) {
    throw InvalidArgument(
        "elastic sizes " + std::to_string(sizes.min) + ":" + std::to_string(sizes.max) + ":" +
        std::to_string(sizes.multiple) +
        " allow no number of ranks: use MIN:MAX:MULTIPLE with a multiple between");
  }
  if (options.shards < sizes.max) {
    throw InvalidArgument(std::to_string(options.shards) + " shards cannot occupy " +
                          std::to_string(sizes.max) + " ranks: use at least as many shards");
  }
  auto world = std::make_shared<World>();
  world->generation = resume.generation;
  world_ = std::move(world);
}

void WorldMachine::on(const WorldEvent& event, WorldActions& actions) {
  if (phase_ == Phase::kEnded) return;
  actions_ = &actions;
  std::visit([this](const auto& one) { handle(one); }, event);
  do {
    tend_hosts();
  } while (advance());
  actions_ = nullptr;
}

void WorldMachine::handle(const HostsRead& event) {
  // Editors leave an empty file for a moment, and an empty disk for longer.
  if (event.lines.empty()) {
    act(LogRecord{next_sequence_++, Change::kRefused, "-", world_->generation, step_, size_,
                  "an empty hosts file drains no host"});
    if (!is_file_read_) begin_wait();
    return;
  }
  for (const HostId host : hosts_.read(event.lines)) {
    log(Change::kRefused, host, "the hosts of -n stay, whatever the hosts file says");
  }
  if (std::exchange(is_file_read_, true)) return;
  log_members_before();
  begin_wait();
}

// Whoever replays the log would count them for ever.
void WorldMachine::log_members_before() {
  for (const std::string& address : lost_with_launcher_) {
    act(LogRecord{next_sequence_++, Change::kLost, address, world_->generation, step_, --size_,
                  "the launcher ended"});
  }
  lost_with_launcher_.clear();
}

void WorldMachine::handle(const PrepareEnded& event) {
  HostTable::Host& host = hosts_[event.host];
  if (host.gate != HostTable::Gate::kPreparing) return;
  if (event.has_succeeded) {
    host.gate = HostTable::Gate::kOpen;
    act(about(EventKind::kPrepareDone, event.host, event.cause));
    return;
  }
  act(about(EventKind::kPrepareFailed, event.host, event.cause));
  if (event.is_unreachable) {
    host.gate = HostTable::Gate::kClosed;
    return fail_host(event.host);
  }
  host.gate = HostTable::Gate::kRefused;
  refusal_ = "preparation failed: " + event.cause;
  log(Change::kRefused, event.host, refusal_);
}

void WorldMachine::handle(const MemberSaid& event) {
  Member* const from = find(event.from);
  if (from == nullptr) return;
  std::visit([&](const auto& message) { hear(*from, message); }, event.message);
}

void WorldMachine::handle(const MemberEnded& event) {
  const Member* const member = find(event.member);
  if (member == nullptr) return;
  const HostId host = member->host;
  const bool is_expected =
      member->status == Member::Status::kLeaving || member->status == Member::Status::kEnding;
  if (is_expected) {
    act(about(EventKind::kMemberLeft, host, event.cause));
    lose(event.member, event.cause);
    return;
  }
  if (member->status == Member::Status::kInWorld && phase_ != Phase::kSaving) {
    has_crashed_ = true;
    end_code_ = event.code != 0 ? event.code : kLauncherError;
    end_cause_ = event.cause;
    if (phase_ == Phase::kRunning || phase_ == Phase::kHolding) {
      suspects_.add(*world_, event.member);
    }
  }
  // It has nothing to do there, and would have nothing to do the next time.
  const bool has_begun = member->status >= Member::Status::kInWorld;
  lose(event.member, event.cause);
  if (event.code == 0 && !has_begun) {
    hosts_[host].gate = HostTable::Gate::kRefused;
    refusal_.clear();
  } else {
    fail_host(host);
  }
}

void WorldMachine::handle(const MemberStopped& event) {
  Member* const member = find(event.member);
  if (member == nullptr || member->is_stopped == event.is_stopped) return;
  member->is_stopped = event.is_stopped;
  if (event.is_stopped) start_timer(WorldTimer::kStopped, event.member, options_.stop_limit);
}

void WorldMachine::handle(const HostLost& event) {
  std::vector<MemberId> lost;
  for (const Member& member : members_) {
    if (member.host == event.host) lost.push_back(member.id);
  }
  for (const MemberId id : lost) lose(id, event.cause);
  HostTable::Host& host = hosts_[event.host];
  host.is_leaving = false;
  if (host.gate != HostTable::Gate::kRefused) host.gate = HostTable::Gate::kClosed;
  fail_host(event.host);
}

void WorldMachine::handle(const HostLeaving& event) { hosts_[event.host].is_leaving = true; }

void WorldMachine::handle(const Rebalance& event) {
  if (event.generation != world_->generation) return;
  if (event.weights.size() != world_->members.size()) return;
  for (std::size_t rank = 0; rank < event.weights.size(); ++rank) {
    if (Member* const member = find(world_->members[rank])) member->weight = event.weights[rank];
  }
}

void WorldMachine::handle(const WorldTimerElapsed& event) {
  switch (event.timer) {
    case WorldTimer::kWindow:
      if (window_ == Window::kOpen) window_ = Window::kElapsed;
      return;
    case WorldTimer::kSpacing:
      if (event.subject == world_->generation) is_spacing_ = false;
      return;
    case WorldTimer::kReports:
      if (event.subject == world_->generation) judge_accusations();
      return;
    case WorldTimer::kStopped: {
      const Member* const member = find(event.subject);
      if (member != nullptr && member->is_stopped) {
        expel(event.subject, "stopped by a signal for too long");
      }
      return;
    }
    case WorldTimer::kDrain: {
      const Member* const member = find(event.subject);
      if (member == nullptr) return;
      if (member->status == Member::Status::kLeaving) {
        return expel(event.subject, "has not ended since it was told to leave");
      }
      if (!member->is_draining) return;
      if (!has_changes_left()) return say_no_change_is_left(member->host);
      // Nobody comes to a boundary meanwhile.
      if (phase_ == Phase::kCollecting) {
        start_timer(WorldTimer::kDrain, event.subject, options_.drain_timeout);
      }
      if (phase_ != Phase::kRunning && phase_ != Phase::kHolding) return;
      // One that has to stay, so that there are enough, drains when there are more.
      const auto staying = choose_members();
      if (std::count(staying.begin(), staying.end(), event.subject) != 0) return;
      expel(event.subject, "reached no boundary to drain at in time");
      return;
    }
    case WorldTimer::kCoolDown: {
      HostTable::Host& host = hosts_[event.subject];
      host.is_cooling = false;
      if (has_run_) begin_to_settle(event.subject);
      return;
    }
    case WorldTimer::kSettled: {
      HostTable::Host& host = hosts_[event.subject];
      if (!host.is_cooling && has_run_ && has_living(event.subject)) host.failures = 0;
      return;
    }
    case WorldTimer::kPrepare:
      if (hosts_[event.subject].gate != HostTable::Gate::kPreparing) return;
      act(Prepare{event.subject, false});
      handle(PrepareEnded{event.subject, false, "took longer than --prepare-timeout"});
      return;
    case WorldTimer::kElasticTimeout:
      if (event.subject != world_->generation) return;
      if (phase_ == Phase::kWaiting && is_anybody_coming()) {
        start_timer(WorldTimer::kElasticTimeout, event.subject, options_.elastic_timeout);
      } else if (phase_ == Phase::kWaiting) {
        begin_saving(kLauncherError, "fewer ranks than the minimum for too long");
      } else if (phase_ == Phase::kSaving) {
        // One of several may have saved it.
        end_job(end_code_, end_cause_ + (is_saved_ ? "" : "; the state was not saved in time"));
      }
      return;
    case WorldTimer::kReplies:
      if (event.subject == world_->generation) end_silent();
      return;
  }
}

void WorldMachine::hear(Member& from, const Ready& message) {
  if (from.status != Member::Status::kStarting) return;
  if (message.fingerprint != fingerprint_.value_or(message.fingerprint)) {
    refuse(from, "another build, option or state than the job's");
    return;
  }
  fingerprint_ = message.fingerprint;
  from.status = Member::Status::kReady;
  EventRecord pending = about(EventKind::kMemberPending, from.host, "");
  pending.member = from.id;
  act(std::move(pending));
}

void WorldMachine::hear(Member& from, const Held& message) {
  if (message.generation != world_->generation || has_replied(from.id)) return;
  if (phase_ != Phase::kRunning && phase_ != Phase::kHolding) return;
  if (from.status != Member::Status::kInWorld) return;
  // It waits for the others outside of any collective, which would have a limit of its own. After
  // the last step others may have something left to do that takes its time.
  if (replies_.empty() && !message.is_finished) {
    start_timer(WorldTimer::kReplies, message.generation, options_.replies);
  }
  replies_.push_back({from.id, message.step, message.is_finished});
  step_ = std::max(step_, message.step);
  if (has_bug(SeededBug::kLeaveEarly) && from.is_draining) {
    act(Tell{from.id, Leave{message.generation}});
    from.status = Member::Status::kLeaving;
    --size_;
    log(Change::kRemoved, from.host, "drained");
  }
}

void WorldMachine::hear(Member& from, const MyState& message) {
  const bool is_current =
      message.generation == world_->generation || has_bug(SeededBug::kStateWithoutGeneration);
  if (!is_current || phase_ != Phase::kCollecting || has_replied(from.id)) return;
  if (from.status == Member::Status::kInWorld) replies_.push_back({from.id, message.step, false});
}

void WorldMachine::hear(Member& /*from*/, const Fetched& message) {
  if (message.generation != world_->generation) return;
  fetched_bytes_ += message.bytes;
  // What is on disk is known to those alone who read it.
  if (!start_ || !start_->donors.empty()) return;
  start_->step = checkpoint_ = message.step;
  step_ = std::max(step_, message.step);
}

void WorldMachine::hear(Member& /*from*/, const Running& message) {
  if (message.generation != world_->generation) return;
  if (phase_ != Phase::kRunning && phase_ != Phase::kHolding) return;
  step_ = std::max(step_, message.step);
  has_run_ = true;
  has_broken_early_ = false;
  for (HostId host = 0; host < hosts_.size(); ++host) begin_to_settle(host);
  // What a loss has cost says nothing of the cost of a change, and somebody is to be taken in soon.
  const std::chrono::milliseconds pause(is_pause_planned_ ? message.pause_ms : 0);
  start_timer(WorldTimer::kSpacing, message.generation,
              std::max(options_.spacing, pause * options_.spacing_per_pause));
  EventRecord changed = about(EventKind::kWorldChanged, 0, cause_);
  changed.address.clear();
  changed.step = start_->step;
  changed.size = static_cast<std::uint32_t>(world_->members.size());
  changed.cut = world_->cut;
  changed.donors = start_->donors;
  changed.pause_ms = message.pause_ms;
  changed.bytes = fetched_bytes_;
  changed.redone = is_redone_ ? 1 : 0;
  act(std::move(changed));
}

void WorldMachine::hear(Member& from, const Accuse& message) {
  if (message.generation != world_->generation) return;
  if (phase_ == Phase::kWaiting || phase_ == Phase::kSaving) return;
  if (accusations_.empty()) start_timer(WorldTimer::kReports, message.generation, options_.reports);
  accusations_.push_back({from.id, message.peer});
}

void WorldMachine::hear(Member& from, const Saved& message) {
  if (phase_ != Phase::kSaving || std::erase(writers_, from.id) == 0) return;
  checkpoint_ = std::max(checkpoint_, message.step);
  is_saved_ = true;
  EventRecord will = about(EventKind::kLastWill, from.host, end_cause_);
  will.member = from.id;
  will.step = message.step;
  act(std::move(will));
}

void WorldMachine::log(Change change, HostId host, const std::string& cause) {
  if (change != Change::kRefused) cause_ = cause;
  act(LogRecord{next_sequence_++, change, hosts_[host].address, world_->generation, step_, size_,
                cause});
}

void WorldMachine::start_timer(WorldTimer timer, std::uint32_t subject,
                               std::chrono::milliseconds duration) {
  act(StartWorldTimer{timer, subject, duration});
}

EventRecord WorldMachine::about(EventKind kind, HostId host, const std::string& cause) const {
  EventRecord record;
  record.kind = kind;
  record.address = hosts_[host].address;
  record.generation = world_->generation;
  record.step = step_;
  record.cause = cause;
  return record;
}

const WorldMachine::Member* WorldMachine::find(MemberId id) const {
  for (const Member& member : members_) {
    if (member.id == id) return &member;
  }
  return nullptr;
}

WorldMachine::Member* WorldMachine::find(MemberId id) {
  return const_cast<Member*>(std::as_const(*this).find(id));
}

bool WorldMachine::has_replied(MemberId id) const {
  return std::any_of(replies_.begin(), replies_.end(),
                     [&](const Reply& reply) { return reply.from == id; });
}

void WorldMachine::Member::fields(auto& archive, auto& m) {
  archive("id", m.id);
  archive("host", m.host);
  archive("status", m.status);
  archive("is_base", m.is_base);
  archive("is_draining", m.is_draining);
  archive("is_stopped", m.is_stopped);
  archive("weight", m.weight);
}

void WorldMachine::Reply::fields(auto& archive, auto& r) {
  archive("from", r.from);
  archive("step", r.step);
  archive("is_finished", r.is_finished);
}

std::uint64_t WorldMachine::digest() const {
  Digest digest;
  digest.add(hosts_);
  digest.add(members_);
  digest.add(next_member_);
  digest.add(next_sequence_);
  digest.add(fingerprint_);
  digest.add(is_file_read_);
  digest.add(phase_);
  digest.add(world_);
  digest.add(start_);
  digest.add(replies_);
  for (const Accusation& accusation : accusations_) {
    digest.add(accusation.from);
    digest.add(accusation.peer);
  }
  digest.add(step_);
  digest.add(checkpoint_);
  digest.add(size_);
  digest.add(is_redone_);
  digest.add(window_);
  digest.add(is_spacing_);
  digest.add(is_pause_planned_);
  digest.add(changes_);
  digest.add(is_limit_told_);
  digest.add(has_crashed_);
  digest.add(crash_step_);
  digest.add(crash_rounds_);
  digest.add(has_run_);
  digest.add(has_broken_early_);
  digest.add(total_checkpoint_);
  digest.add(total_rounds_);
  digest.add(writers_);
  digest.add(is_saved_);
  return digest.value();
}

}  // namespace chainmail::membership
