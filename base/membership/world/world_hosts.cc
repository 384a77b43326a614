// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How WorldMachine starts, drains and gives up members.

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/membership/seeded_bug.h"
#include "base/membership/world/world_machine.h"

namespace chainmail::membership {

void WorldMachine::tend_hosts() {
  if (phase_ == Phase::kSaving || phase_ == Phase::kEnded) return;
  for (HostId host = 0; host < hosts_.size(); ++host) {
    const std::uint32_t slots = hosts_[host].slots();
    std::uint32_t live = 0;
    for (const Member& member : members_) live += member.host == host && member.is_live() ? 1U : 0U;
    if (live > slots) drain_excess(host, live - slots);
    for (Member& member : members_) {
      if (live >= slots) break;
      if (member.host != host || !member.is_draining) continue;
      if (member.status != Member::Status::kInWorld) continue;
      member.is_draining = false;
      ++live;
    }
    start_members(host);
  }
}

// Those that are not in the world first, then the youngest; base members last.
void WorldMachine::drain_excess(HostId host, std::uint32_t excess) {
  std::vector<Member*> candidates;
  for (Member& member : members_) {
    if (member.host == host && member.is_live()) candidates.push_back(&member);
  }
  const auto order = [](const Member* member) {
    return std::tuple(member->status == Member::Status::kInWorld, member->is_base);
  };
  std::reverse(candidates.begin(), candidates.end());
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](auto* a, auto* b) { return order(a) < order(b); });
  candidates.resize(excess);
  for (Member* const member : candidates) begin_drain(*member);
}

void WorldMachine::begin_drain(Member& member) {
  EventRecord draining = about(EventKind::kMemberDraining, member.host, "");
  draining.member = member.id;
  act(std::move(draining));
  if (member.status != Member::Status::kInWorld) {
    act(EndMember{member.id});
    member.status = Member::Status::kEnding;
    return;
  }
  member.is_draining = true;
  if (!has_changes_left()) return say_no_change_is_left(member.host);
  start_timer(WorldTimer::kDrain, member.id, options_.drain_timeout);
}

// Once: there may be any number of edits.
void WorldMachine::say_no_change_is_left(HostId host) {
  if (std::exchange(is_limit_told_, true)) return;
  log(Change::kRefused, host,
      "no change is left of --max-changes: nobody is taken in or drained any more");
}

void WorldMachine::start_members(HostId id) {
  HostTable::Host& host = hosts_[id];
  // What is being ended still occupies its slot.
  std::uint32_t present = 0;
  std::uint32_t base = 0;
  std::uint32_t live = 0;
  for (const Member& member : members_) {
    live += member.is_live() ? 1U : 0U;
    present += member.host == id ? 1U : 0U;
    base += member.host == id && member.is_live() && member.is_base ? 1U : 0U;
  }
  const std::uint32_t most = options_.sizes.max + options_.spares;
  if (host.slots() == 0 && host.gate == HostTable::Gate::kPreparing) {
    host.gate = HostTable::Gate::kClosed;
    act(Prepare{id, false});
  }
  for (; present < host.slots() && live < most && !host.is_cooling; ++present, ++live) {
    if (!has_changes_left()) return say_no_change_is_left(id);
    if (host.gate == HostTable::Gate::kClosed && options_.has_prepare) {
      host.gate = HostTable::Gate::kPreparing;
      act(about(EventKind::kPrepareStarted, id, ""));
      act(Prepare{id, true});
      start_timer(WorldTimer::kPrepare, id, options_.prepare_timeout);
    }
    if (host.gate == HostTable::Gate::kClosed) host.gate = HostTable::Gate::kOpen;
    if (host.gate != HostTable::Gate::kOpen) return;
    Member& member = members_.emplace_back();
    member.id = next_member_++;
    member.host = id;
    member.is_base = base < host.base_slots;
    base += member.is_base ? 1 : 0;
    act(StartMember{member.id, id});
  }
}

// A host is being prepared, which has a time limit of its own; or there has been no world yet, and
// a program may take as long to begin as in any job.
bool WorldMachine::is_anybody_coming() const {
  for (HostId host = 0; host < hosts_.size(); ++host) {
    if (hosts_[host].gate == HostTable::Gate::kPreparing) return true;
  }
  return world_->members.empty() &&
         std::any_of(members_.begin(), members_.end(), [](const Member& member) {
           return member.status == Member::Status::kStarting;
         });
}

void WorldMachine::fail_host(HostId host) {
  if (hosts_[host].is_cooling) return;
  hosts_.fail(host);
  start_timer(WorldTimer::kCoolDown, host, hosts_.wait_after_failure(host, options_));
}

// A failure may take longer to be seen than the host has to wait after it: only time in which its
// members take part in steps counts for it. A timer of before the last failure is replaced here,
// since all that has to be so for it to count begins with a world's first step or the end of a
// wait.
void WorldMachine::begin_to_settle(HostId id) {
  const HostTable::Host& host = hosts_[id];
  if (host.failures == 0 || host.is_cooling || !has_living(id)) return;
  start_timer(WorldTimer::kSettled, id, 3 * hosts_.wait_after_failure(id, options_));
}

bool WorldMachine::has_living(HostId host) const {
  return std::ranges::any_of(living(), [&](MemberId id) { return find(id)->host == host; });
}

// The host is not asked again before its line has gone and come back.
void WorldMachine::refuse(const Member& member, const std::string& cause) {
  hosts_[member.host].gate = HostTable::Gate::kRefused;
  refusal_.clear();
  EventRecord refused = about(EventKind::kMemberRefused, member.host, cause);
  refused.member = member.id;
  act(std::move(refused));
  log(Change::kRefused, member.host, cause);
  act(EndMember{member.id});
  find(member.id)->status = Member::Status::kEnding;
}

// It is gone: dead, or with its host.
void WorldMachine::lose(MemberId id, const std::string& cause) {
  const auto member = std::find_if(members_.begin(), members_.end(),
                                   [&](const Member& candidate) { return candidate.id == id; });
  if (member == members_.end()) return;
  const Member lost = *member;
  members_.erase(member);
  if (lost.status == Member::Status::kStarting || lost.status == Member::Status::kReady) {
    log(Change::kRefused, lost.host, "ended before it had joined: " + cause);
  }
  if (lost.status != Member::Status::kInWorld) return;
  --size_;
  log(Change::kLost, lost.host, cause);
  std::erase(writers_, id);
  is_broken_ = true;
  if (has_bug(SeededBug::kDeadReplyCounted)) return;
  std::erase_if(replies_, [&](const Reply& reply) { return reply.from == id; });
}

// It may still live, and is ended; its slot is free when it has.
void WorldMachine::expel(MemberId id, const std::string& cause) {
  const Member expelled = *find(id);
  if (expelled.status == Member::Status::kEnding) return;
  act(EndMember{id});
  if (expelled.status == Member::Status::kLeaving) return;
  lose(id, cause);
  members_.push_back(expelled);
  members_.back().status = Member::Status::kEnding;
  std::sort(members_.begin(), members_.end(),
            [](const Member& a, const Member& b) { return a.id < b.id; });
}

void WorldMachine::judge_accusations() {
  const std::vector<MemberId> members = living();
  const auto place_of = [&](MemberId id) {
    return static_cast<std::uint32_t>(std::find(members.begin(), members.end(), id) -
                                      members.begin());
  };
  std::vector<Accusation> by_place;
  for (const Accusation& a : accusations_) by_place.push_back({place_of(a.from), place_of(a.peer)});
  accusations_.clear();
  std::vector<HostId> hosts;
  for (const MemberId id : members) hosts.push_back(find(id)->host);
  const auto staying = largest_reaching_set(hosts, by_place);
  for (std::uint32_t place = 0; place < members.size(); ++place) {
    if (std::binary_search(staying.begin(), staying.end(), place)) continue;
    expel(members[place], "cut off: others cannot reach it, or it cannot reach them");
    fail_host(find(members[place])->host);
  }
}

// Others wait for the word of these at a boundary, where no collective has a time limit. A member
// that is stopped has one of its own.
void WorldMachine::end_silent() {
  if (phase_ == Phase::kWaiting || phase_ == Phase::kSaving) return;
  if (phase_ != Phase::kCollecting && replies_.empty()) return;
  bool is_any_stopped = false;
  for (const MemberId id : living()) {
    const Member member = *find(id);
    if (has_replied(id)) continue;
    is_any_stopped |= member.is_stopped;
    if (member.is_stopped) continue;
    has_crashed_ = true;
    end_code_ = kLauncherError;
    end_cause_ = "has not come to the end of its step within " +
                 std::to_string(options_.replies.count() / 1000) +
                 " s, while the next world waited for it";
    expel(id, end_cause_);
    fail_host(member.host);
  }
  // It may go on before that, and still not reply.
  if (is_any_stopped) start_timer(WorldTimer::kReplies, world_->generation, options_.stop_limit);
}

}  // namespace chainmail::membership
