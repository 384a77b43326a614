// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How WorldMachine goes from one world to the next.

#include <algorithm>
#include <utility>

#include "base/membership/cut.h"
#include "base/membership/seeded_bug.h"
#include "base/membership/world/world_machine.h"

namespace chainmail::membership {
namespace {

bool contains(const std::vector<MemberId>& members, MemberId id) {
  return std::find(members.begin(), members.end(), id) != members.end();
}

}  // namespace

// One step of whatever is due; true if there may be more.
bool WorldMachine::advance() {
  switch (phase_) {
    case Phase::kWaiting: {
      is_broken_ = false;
      if (!is_file_read_ || !is_first_world_due()) return false;
      if (are_all_hosts_refused()) {
        begin_saving(kLauncherError, "no host of -n could be prepared: " + refusal_);
        return true;
      }
      auto members = choose_members();
      if (members.empty()) return false;
      is_redone_ = false;
      announce(std::move(members), newest());
      return true;
    }
    case Phase::kRunning:
    case Phase::kHolding:
    case Phase::kCollecting: {
      const std::vector<MemberId> members = living();
      if (std::exchange(is_broken_, false)) {
        is_redone_ = true;
        // Otherwise it has broken while it began, perhaps by those whom it has taken in.
        if (has_run_) is_pause_planned_ = false;
        has_broken_early_ = !has_run_;
        if (!members.empty()) {
          announce(members, std::nullopt);
        } else if (!has_died_too_often({checkpoint_, {}})) {
          begin_wait();
        }
        return true;
      }
      if (members.empty()) return false;
      for (const MemberId member : members) {
        if (!has_replied(member)) return phase_ == Phase::kRunning && consider_change();
      }
      return phase_ == Phase::kCollecting ? finish_collecting() : finish_holding();
    }
    case Phase::kSaving:
      is_broken_ = false;
      if (!writers_.empty()) return false;
      is_saved_ ? end_job(end_code_, end_cause_) : choose_writers();
      return false;
    case Phase::kEnded:
      return false;
  }
  return false;
}

// The job begins when each rank of -n is ready or has failed.
bool WorldMachine::is_first_world_due() const {
  if (!world_->members.empty()) return true;
  for (HostId host = 0; host < hosts_.size(); ++host) {
    const bool is_base = hosts_[host].base_slots != 0;
    if (is_base && hosts_[host].gate == HostTable::Gate::kPreparing) return false;
  }
  return std::none_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.is_base && member.status == Member::Status::kStarting;
  });
}

// Before the first world, and by their preparation: as a program that fails on all hosts.
bool WorldMachine::are_all_hosts_refused() const {
  if (!world_->members.empty() || !members_.empty() || refusal_.empty()) return false;
  for (HostId host = 0; host < hosts_.size(); ++host) {
    if (hosts_[host].slots() > 0 && hosts_[host].gate != HostTable::Gate::kRefused) return false;
  }
  return true;
}

std::vector<MemberId> WorldMachine::living() const {
  std::vector<MemberId> ids;
  for (const MemberId id : world_->members) {
    const Member* const member = find(id);
    if (member != nullptr && member->status == Member::Status::kInWorld) ids.push_back(id);
  }
  return ids;
}

// Where the next world begins, by the replies of this one. Without any state left it begins at the
// newest checkpoint.
Start WorldMachine::newest() const {
  std::optional<StepNumber> best;
  for (const Reply& reply : replies_) {
    if (!reply.step) continue;
    const bool is_better = has_bug(SeededBug::kResumeAtMinimum) ? reply.step < best.value_or(~0ULL)
                                                                : reply.step > best;
    if (!best || is_better) best = reply.step;
    if (has_bug(SeededBug::kDonorIsRankZero) && reply.from == world_->members.front()) {
      return {*reply.step, {reply.from}};
    }
  }
  if (!best) return {checkpoint_, {}};
  Start start{*best, {}};
  for (const MemberId id : world_->members) {
    for (const Reply& reply : replies_) {
      if (reply.from == id && reply.step == best) start.donors.push_back(id);
    }
  }
  return start;
}

// The members of the next world: who is there and not draining, in the order of ranks, then those
// that are ready, as far as the allowed sizes go. Somebody who has the newest state is among them,
// and drains one world later if need be. Empty where the minimum cannot be reached.
std::vector<MemberId> WorldMachine::choose_members() const {
  const bool is_running = phase_ == Phase::kRunning || phase_ == Phase::kHolding;
  const std::vector<MemberId> old = living();
  const std::vector<MemberId> holders = is_running ? old : newest().donors;
  std::vector<MemberId> staying;
  std::vector<MemberId> leaving;
  for (const MemberId id : old) (find(id)->is_draining ? leaving : staying).push_back(id);
  std::vector<MemberId> ready;
  for (const Member& member : members_) {
    const bool is_usable = member.status == Member::Status::kReady && !member.is_stopped;
    if (is_usable) ready.push_back(member.id);
  }
  const auto recall = [&](MemberId id) {
    staying.push_back(id);
    std::erase(leaving, id);
    std::sort(staying.begin(), staying.end(),
              [&](MemberId a, MemberId b) { return world_->rank_of(a) < world_->rank_of(b); });
  };
  const auto first_holder = [&](const std::vector<MemberId>& among) {
    return std::find_if(among.begin(), among.end(),
                        [&](MemberId id) { return contains(holders, id); });
  };
  if (first_holder(staying) == staying.end() && first_holder(leaving) != leaving.end()) {
    recall(*first_holder(leaving));
  }
  const auto size = [&] {
    return options_.sizes.fit(static_cast<std::uint32_t>(staying.size() + ready.size()));
  };
  while (size() == 0 && !leaving.empty()) recall(leaving.front());
  // Who comes from a host that has just failed may be out of the others' reach again: they make a
  // step first.
  const bool is_enough = options_.sizes.fit(static_cast<std::uint32_t>(staying.size())) != 0;
  if (has_broken_early_ && phase_ == Phase::kCollecting && is_enough) {
    std::erase_if(ready, [&](MemberId id) { return hosts_[find(id)->host].failures != 0; });
  }
  // Too many: the youngest wait as spares, those first who lack the newest state.
  while (staying.size() > size()) {
    const auto behind = std::find_if(staying.rbegin(), staying.rend(),
                                     [&](MemberId id) { return !contains(holders, id); });
    const MemberId going = behind == staying.rend() ? staying.back() : *behind;
    std::erase(staying, going);
  }
  const std::size_t free = size() - staying.size();
  ready.resize(std::min(ready.size(), free));
  staying.insert(staying.end(), ready.begin(), ready.end());
  return staying;
}

// Who has not been measured counts as the average of those who have.
std::vector<ShardNumber> WorldMachine::cut_for(const std::vector<MemberId>& members) const {
  std::uint64_t sum = 0;
  std::uint32_t measured = 0;
  std::vector<std::uint32_t> weights;
  for (const MemberId id : members) {
    weights.push_back(find(id)->weight);
    sum += weights.back();
    measured += weights.back() != 0 ? 1U : 0U;
  }
  const auto average = measured == 0 ? 1U : static_cast<std::uint32_t>(sum / measured);
  for (std::uint32_t& weight : weights) weight = weight == 0 ? average : weight;
  return make_cut(options_.shards, weights);
}

// Somebody is to leave who is not one of these, which has a time limit.
bool WorldMachine::is_draining(const std::vector<MemberId>& members) const {
  return std::ranges::any_of(
      living(), [&](MemberId id) { return find(id)->is_draining && !contains(members, id); });
}

// Planned changes wait for their window and, but for drains, for the distance from the last one.
bool WorldMachine::consider_change() {
  const auto members = choose_members();
  const bool is_wanted = !members.empty() && has_changes_left() &&
                         (members != world_->members || cut_for(members) != world_->cut);
  if (!is_wanted) {
    window_ = Window::kClosed;
    return false;
  }
  if (window_ == Window::kClosed) {
    window_ = Window::kOpen;
    start_timer(WorldTimer::kWindow, 0, options_.window);
  }
  const bool is_urgent = has_run_ && is_draining(members);
  if (window_ != Window::kElapsed || (is_spacing_ && !is_urgent)) return false;
  phase_ = Phase::kHolding;
  for (const MemberId id : world_->members) {
    if (find(id)->is_stopped) continue;
    act(Tell{id, Wanted{world_->generation}});
    return true;
  }
  // All are stopped: whoever continues first is asked.
  phase_ = Phase::kRunning;
  return false;
}

bool WorldMachine::finish_holding() {
  const bool is_finished = std::all_of(replies_.begin(), replies_.end(),
                                       [](const Reply& reply) { return reply.is_finished; });
  if (is_finished) {
    end_job(0, "finished");
    return false;
  }
  const Start start = newest();
  for (const Reply& reply : replies_) {
    if (reply.step == start.step) continue;
    end_job(kLauncherError, "members are held at different steps");
    return false;
  }
  is_redone_ = false;
  is_pause_planned_ = true;
  announce(choose_members(), start);
  return true;
}

// Counts deaths in the same step. Where nobody has a state any more, nobody knows it: it is the
// same if this world has made none, and nothing is gained as long as all begin at the same
// checkpoint. Begins to end the job when that was once too often.
bool WorldMachine::has_died_too_often(const Start& start) {
  if (!std::exchange(has_crashed_, false)) return false;
  const bool is_total = start.donors.empty();
  const bool is_same_checkpoint = total_checkpoint_ == checkpoint_;
  const bool is_same_step = is_total ? !has_run_ && is_same_checkpoint : crash_step_ == start.step;
  crash_rounds_ = is_same_step ? crash_rounds_ + 1 : 1;
  std::uint32_t rounds = crash_rounds_;
  if (is_total) {
    total_rounds_ = is_same_checkpoint ? total_rounds_ + 1 : 1;
    total_checkpoint_ = checkpoint_;
    rounds = std::max(rounds, total_rounds_);
  } else {
    crash_step_ = start.step;
  }
  suspects_.end_round(rounds == 1, is_total);
  if (rounds < options_.max_deaths_at_step) return false;
  const std::string times = std::to_string(rounds) + " times";
  begin_saving(end_code_, (is_total ? "all members died " + times + " without a newer checkpoint"
                                    : "members died " + times + " in the step after " +
                                          std::to_string(crash_step_)) +
                              ": " + end_cause_ + suspects_.text(options_.shards));
  return true;
}

bool WorldMachine::finish_collecting() {
  const Start start = newest();
  step_ = start.step;
  if (has_died_too_often(start)) return true;
  if (changes_ > options_.max_changes) {
    begin_saving(kLauncherError, "more changes than --max-changes allows");
    return true;
  }
  auto members = choose_members();
  if (members.empty()) {
    begin_wait();
  } else if (members == world_->members) {
    start_ = start;
    replies_.clear();
    phase_ = Phase::kRunning;
    for (const MemberId id : members) act(Tell{id, Resume{world_->generation, start}});
  } else {
    announce(std::move(members), start);
  }
  return true;
}

void WorldMachine::announce(std::vector<MemberId> members, std::optional<Start> start) {
  auto world = std::make_shared<World>();
  world->generation = world_->generation + 1;
  world->cut = cut_for(members);
  for (const MemberId id : members) {
    const Member& member = *find(id);
    world->hosts.push_back(member.host);
    if (member.is_base) world->base.push_back(id);
  }
  world->members = std::move(members);
  const bool is_moved = world->members == world_->members && world->cut != world_->cut;
  if (is_moved) cause_ = "shards divided anew";
  // Those who go give nothing any more.
  if (start) {
    std::erase_if(start->donors, [&](MemberId id) { return !contains(world->members, id); });
    step_ = start->step;
  }
  const bool is_first = world_->members.empty();
  changes_ += is_first ? 0 : 1;
  const std::vector<MemberId> old = living();
  world_ = std::move(world);
  start_ = std::move(start);
  for (const MemberId id : old) {
    if (!contains(world_->members, id)) dismiss(*find(id));
  }
  for (const MemberId id : world_->members) {
    Member& member = *find(id);
    if (member.status != Member::Status::kInWorld) {
      member.status = Member::Status::kInWorld;
      ++size_;
      log(Change::kAdded, member.host, is_first ? "first world" : "joined");
    }
    act(Tell{id, NewWorld{world_, start_}});
  }
  std::erase_if(replies_, [&](const Reply& reply) {
    return !has_bug(SeededBug::kDeadReplyCounted) || find(reply.from) != nullptr;
  });
  accusations_.clear();
  fetched_bytes_ = 0;
  has_run_ = false;
  window_ = Window::kClosed;
  is_spacing_ = true;
  phase_ = start_ ? Phase::kRunning : Phase::kCollecting;
  if (!start_) start_timer(WorldTimer::kReplies, world_->generation, options_.replies);
}

// A member of the last world that is not one of the new: it leaves, or waits as a spare.
void WorldMachine::dismiss(Member& member) {
  --size_;
  if (member.is_draining) {
    log(Change::kRemoved, member.host, "drained");
    act(Tell{member.id, Leave{world_->generation}});
    member.status = Member::Status::kLeaving;
    // Its slot is free when it has ended.
    start_timer(WorldTimer::kDrain, member.id, options_.drain_timeout);
  } else {
    log(Change::kRemoved, member.host, "waits as a spare: the size is not allowed");
    act(Tell{member.id, NewWorld{world_, start_}});
    member.status = Member::Status::kReady;
  }
}

void WorldMachine::begin_wait() {
  phase_ = Phase::kWaiting;
  window_ = Window::kClosed;
  // The time without enough hosts says nothing of what a change costs.
  is_pause_planned_ = world_->members.empty();
  start_timer(WorldTimer::kElasticTimeout, world_->generation, options_.elastic_timeout);
}

void WorldMachine::begin_saving(int code, const std::string& cause) {
  end_code_ = code;
  end_cause_ = cause;
  phase_ = Phase::kSaving;
  start_timer(WorldTimer::kElasticTimeout, world_->generation, options_.elastic_timeout);
  choose_writers();
}

// One per host of those who have the newest state, so that a host may die meanwhile.
void WorldMachine::choose_writers() {
  std::vector<HostId> hosts;
  for (const MemberId id : newest().donors) {
    const Member* const member = find(id);
    if (member == nullptr || std::count(hosts.begin(), hosts.end(), member->host) != 0) continue;
    hosts.push_back(member->host);
    writers_.push_back(id);
    act(Tell{id, Save{world_->generation}});
  }
  if (writers_.empty()) end_job(end_code_, end_cause_);
}

void WorldMachine::end_job(int code, const std::string& cause) {
  for (const Member& member : members_) {
    if (member.status == Member::Status::kStarting) {
      act(EndMember{member.id});
    } else if (member.status != Member::Status::kEnding) {
      act(Tell{member.id, Leave{world_->generation}});
    }
  }
  act(EndJob{code, cause});
  phase_ = Phase::kEnded;
}

}  // namespace chainmail::membership
