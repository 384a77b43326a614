// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/membership/member/member_machine.h"

#include <utility>

#include "base/membership/digest.h"
#include "base/membership/seeded_bug.h"

namespace chainmail::membership {

void MemberMachine::on(const MemberEvent& event, MemberActions& actions) {
  if (status_ == Status::kExited) return;
  actions_ = &actions;
  std::visit([this](const auto& one) { handle(one); }, event);
  actions_ = nullptr;
}

void MemberMachine::handle(const ProgramReady& event) {
  if (is_launcher_gone_ || status_ != Status::kBuilding) return;
  status_ = Status::kSpare;
  act(Send{Ready{event.fingerprint}});
}

void MemberMachine::handle(const Told& event) {
  if (is_launcher_gone_) return;
  std::visit([this](const auto& message) { obey(message); }, event.message);
}

void MemberMachine::obey(const Wanted& message) {
  if (message.generation != generation_) return;
  is_wanted_ = true;
}

void MemberMachine::obey(const NewWorld& message) {
  if (message.world->generation <= generation_) return;
  world_ = message.world;
  generation_ = world_->generation;
  is_wanted_ = false;
  waiting_start_.reset();
  if (!world_->rank_of(id_)) {
    if (group_generation_ != 0) act(Fence{std::exchange(group_generation_, 0)});
    has_state_ = false;
    is_finished_ = false;
    is_returned_ = true;
    status_ = Status::kSpare;
    return;
  }
  if (!has_bug(SeededBug::kNoFence)) enter_group();
  if (message.start) {
    begin_world(*message.start);
    return;
  }
  if (!has_bug(SeededBug::kNoFence)) status_ = Status::kFenced;
  act(Send{MyState{generation_, committed()}});
}

void MemberMachine::obey(const Resume& message) {
  if (message.generation == generation_) begin_world(message.start);
}

void MemberMachine::obey(const Leave& /*message*/) { exit(); }

void MemberMachine::obey(const Save& message) {
  if (message.generation != generation_ || !has_state_) return;
  status_ = Status::kSaving;
  act(SaveState{committed_});
}

// From here on nothing of an older group counts.
void MemberMachine::enter_group() {
  if (group_generation_ == generation_) return;
  if (group_generation_ != 0) act(Fence{group_generation_});
  group_generation_ = generation_;
  act(Connect{world_, has_bug(SeededBug::kOldSegmentReused) ? 1 : generation_});
}

void MemberMachine::begin_world(const Start& start) {
  enter_group();
  is_boundary_ = false;
  is_first_step_ = true;
  if (!is_returned_) {
    waiting_start_ = start;
    status_ = Status::kCommitted;
    return;
  }
  if (has_state_ && committed_ == start.step) {
    go_on();
    return;
  }
  // There is one copy of the state, which the new one overwrites.
  has_state_ = has_bug(SeededBug::kNewcomerCountedEarly);
  committed_ = start.step;
  status_ = Status::kFetching;
  act(FetchState{generation_, start});
}

void MemberMachine::handle(const StateFetched& event) {
  if (event.generation != group_generation_ || status_ != Status::kFetching) return;
  has_state_ = true;
  committed_ = event.step;
  position_ = event.position;
  is_finished_ = event.is_finished;
  if (is_launcher_gone_) {
    report_will();
    return;
  }
  act(Send{Fetched{generation_, event.bytes, committed_}});
  if (event.is_in_function) {
    is_returned_ = false;
    status_ = Status::kCommitted;
    return;
  }
  go_on();
}

// The next step, unless somebody wants otherwise.
void MemberMachine::go_on() {
  if (is_finished_ || is_boundary_) {
    status_ = Status::kHeld;
    act(Send{Held{generation_, committed_, is_finished_}});
    return;
  }
  begin_step();
}

void MemberMachine::begin_step() {
  status_ = Status::kComputing;
  act(BeginStep{generation_, committed_ + 1, position_, is_wanted_});
  if (has_bug(SeededBug::kPositionMovedEarly)) position_ += options_.batch;
}

void MemberMachine::handle(const Exchanged& event) {
  if (event.generation != group_generation_ || status_ != Status::kComputing) return;
  committed_ = event.step;
  if (!has_bug(SeededBug::kPositionMovedEarly)) position_ += options_.batch;
  is_boundary_ = event.is_change_wanted;
  if (has_bug(SeededBug::kLaneForgotten) && world_->members.size() % 2 == 1) is_boundary_ = false;
  if (has_bug(SeededBug::kStopOnHearing)) is_boundary_ = is_wanted_;
  status_ = Status::kCommitted;
  is_returned_ = false;
  act(Commit{group_generation_, committed_, position_});
  const bool is_reporter = world_->members.front() == id_ && group_generation_ == generation_;
  if (std::exchange(is_first_step_, false) && is_reporter && !is_launcher_gone_) {
    act(Send{Running{generation_, committed_, 0}});
  }
}

// Whatever happened since the commit, what the program wants next is part of the committed state.
void MemberMachine::handle(const StepReturned& event) {
  if (std::exchange(is_returned_, true)) return;
  if (has_state_) is_finished_ = event.is_finished;
  if (status_ != Status::kCommitted) return;
  if (is_launcher_gone_) {
    report_will();
  } else if (waiting_start_) {
    begin_world(*std::exchange(waiting_start_, std::nullopt));
  } else {
    go_on();
  }
}

void MemberMachine::handle(const PeerFailed& event) {
  if (event.generation != generation_ || is_launcher_gone_) return;
  act(Send{Accuse{generation_, event.peer}});
}

void MemberMachine::handle(const StateSaved& /*event*/) {
  if (status_ != Status::kSaving) return;
  if (is_launcher_gone_) {
    status_ = Status::kLastWill;
    return;
  }
  status_ = Status::kFenced;
  act(Send{Saved{committed_}});
}

// The step under way is completed if the others can: they may have committed it.
void MemberMachine::handle(const LauncherGone& /*event*/) {
  if (std::exchange(is_launcher_gone_, true)) return;
  act(StartGrace{options_.grace});
  const bool is_under_way = status_ == Status::kComputing || status_ == Status::kCommitted ||
                            status_ == Status::kFetching || status_ == Status::kSaving;
  if (!is_under_way) report_will();
}

void MemberMachine::handle(const GraceElapsed& /*event*/) {
  if (!is_launcher_gone_) return;
  if (std::exchange(is_grace_over_, true)) {
    exit();
    return;
  }
  act(StartGrace{options_.grace});
  if (status_ != Status::kLastWill && status_ != Status::kSaving) report_will();
}

void MemberMachine::report_will() {
  status_ = Status::kLastWill;
  act(ReportWill{committed()});
}

void MemberMachine::handle(const WriteWill& /*event*/) {
  if (status_ != Status::kLastWill || !has_state_) return;
  status_ = Status::kSaving;
  act(SaveState{committed_});
}

void MemberMachine::exit() {
  status_ = Status::kExited;
  act(Exit{0});
}

std::uint64_t MemberMachine::digest() const {
  Digest digest;
  digest.add(id_);
  digest.add(status_);
  digest.add(world_);
  digest.add(generation_);
  digest.add(group_generation_);
  digest.add(has_state_);
  digest.add(committed_);
  digest.add(position_);
  digest.add(is_finished_);
  digest.add(is_wanted_);
  digest.add(is_boundary_);
  digest.add(is_first_step_);
  digest.add(is_returned_);
  digest.add(waiting_start_);
  digest.add(is_launcher_gone_);
  digest.add(is_grace_over_);
  return digest.value();
}

}  // namespace chainmail::membership
