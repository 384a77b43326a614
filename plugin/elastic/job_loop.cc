// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/job_loop.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <utility>

#include "base/log.h"
#include "plugin/elastic/member/description.h"
#include "plugin/elastic/state/state_transfer.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/optimizer/model_exchange.h"

namespace chainmail::internal {
namespace {

std::string text_of_loss(std::uint64_t step) {
  return "this job has to end, and its state after step " + std::to_string(step) +
         " is lost: call ElasticJob::checkpoint(), and say where it can be saved";
}

}  // namespace

JobLoop::JobLoop(std::shared_ptr<Communicator> communicator,
                 std::shared_ptr<ShardProgress> progress, std::uint64_t seed)
    : communicator_(std::move(communicator)),
      progress_(std::move(progress)),
      step_(communicator_, progress_, seed) {}

void JobLoop::load_state(const ElasticJobState& state) {
  if (is_running_ && !may_load_) throw InvalidArgument("load_state() within run(): end it first");
  step_.load_state(state);
}

void JobLoop::refuse_within_run(const std::string& call) const {
  if (is_running_) throw InvalidArgument(call + " within run(): call it outside");
}

void JobLoop::add(CheckpointItem item, RegisteredState::Kind kind) {
  refuse_within_run("add()");
  registered_.add(std::move(item), kind);
}

void JobLoop::checkpoint(std::unique_ptr<JobCheckpoints> checkpoints) {
  refuse_within_run("checkpoint()");
  if (checkpoints_) throw InvalidArgument("a second checkpoint() of one job");
  checkpoints_ = std::move(checkpoints);
}

void JobLoop::join(std::shared_ptr<LauncherClient> launcher, std::string options) {
  options_ = std::move(options) + "\n" + options_;
  launcher_ = launcher;
  ElasticMember::Callbacks callbacks{
      .leave =
          [this](const auto& why) {
            if (checkpoints_) checkpoints_->leave_world();
            leave_world(*communicator_, why);
          },
      .enter = [this](const membership::World& world) { enter(world); },
      .transfer = [this](const std::vector<int>& donors, std::uint64_t& position,
                         bool& is_finished) { return transfer(donors, position, is_finished); },
      .any =
          [this](bool own) {
            const auto all = communicator_->allgather_obj(std::uint8_t{own});
            return std::ranges::find(all, 1) != all.end();
          },
      .begin_anew = [this] { return begin_anew(); },
      .tell =
          [this] {
            tell_world();
            return static_cast<std::uint64_t>(step_.state().next_step - 1);
          },
      .group = [this] { return communicator_->impl().group; },
      .can_save = [this](std::uint64_t step) { return can_save(step); },
      .save = [this] { save_alone(); }};
  member_ = std::make_unique<ElasticMember>(std::move(launcher), 1, std::move(callbacks));
  step_.follow(*member_, registered_);
}

// The group, and whatever lies in its memory or knows the cut.
void JobLoop::enter(const membership::World& world) {
  MemberWorld plan{.generation = world.generation, .members = {}, .hosts = world.hosts};
  for (const membership::MemberId member : world.members) {
    plan.members.push_back(static_cast<int>(member));
  }
  auto cut = std::make_shared<ops::ShardCut>();
  cut->tree = progress_->cut->tree;
  cut->bounds = world.cut;
  progress_->cut = std::move(cut);
  enter_world(*communicator_, make_world(std::move(plan)));
  progress_->rank = communicator_->rank();
  step_.enter_world();
  for (ModelExchange* const model : progress_->models) model->enter_world();
  generation_ = world.generation;
}

std::uint64_t JobLoop::transfer(const std::vector<int>& donors, std::uint64_t& position,
                                bool& is_finished) {
  TransferredNumbers numbers{position, static_cast<std::uint8_t>(is_finished ? 1 : 0)};
  const MayLoad may_load{may_load_};
  try {
    const std::uint64_t bytes = transfer_state(*communicator_, donors, registered_, numbers);
    position = numbers.position;
    is_finished = numbers.is_finished != 0;
    return bytes;
  } catch (const BadMember& error) {
    if (error.rank() == communicator_->rank()) throw std::runtime_error(error.what());
    throw PeerError(error.what(), communicator_->impl().world->number_of(error.rank()));
  }
}

// Programs, too, read a checkpoint where the first step is to come.
std::uint64_t JobLoop::begin_anew() {
  step_.load_state(*beginning_);
  return static_cast<std::uint64_t>(beginning_->next_step - 1);
}

void JobLoop::tell_world() {
  if (std::exchange(told_generation_, generation_) == generation_) return;
  const MayLoad may_load{may_load_};
  // Also where reading has ended half-way.
  struct NotesLoad {
    ~NotesLoad() {
      if (loop.member_ && loop.step_.state().next_step != before) loop.member_->set_altered(true);
    }
    JobLoop& loop;
    const std::int64_t before;
  } const notes{*this, step_.state().next_step};
  if (checkpoints_) {
    checkpoints_->enter_world(communicator_, registered_);
    if (step_.state().next_step == 1) checkpoints_->load();
  }
  const Membership world{generation_, communicator_->rank(), communicator_->size(),
                         step_.state().next_step};
  for (const auto& callback : on_world_) callback(world);
}

// Of the ranks that have it, one tells.
bool JobLoop::can_save(std::uint64_t step) const {
  if (!checkpoints_ && communicator_->rank() == 0) {
    LogMessage(LogLevel::kWarning) << text_of_loss(step);
  }
  return checkpoints_ != nullptr;
}

// The others may be gone, and with them the group.
void JobLoop::save_alone() {
  const std::int64_t step = step_.state().next_step - 1;
  if (!checkpoints_) throw CheckpointError(text_of_loss(static_cast<std::uint64_t>(step)));
  if (step > 0) checkpoints_->save_alone(registered_, step);
}

// A step that others have broken is called again in the next world, or what it does after its
// commit.
void JobLoop::run_member(const std::function<bool(Step& step)>& function) {
  if (!beginning_) beginning_ = step_.state();
  struct StopsHearing {
    ElasticMember& member;
    ~StopsHearing() { member.stop_hearing(); }
  } const stops{*member_};
  member_->announce(compare_description(*launcher_, options_ + registered_.describe()));
  member_->on_called_again();
  for (;;) {
    const ElasticMember::Next next = member_->wait();
    if (next == ElasticMember::Next::kEnd) break;
    if (next == ElasticMember::Next::kWorld) {
      throw InvalidArgument(
          "run() is called again after an exception of on_world() or of a state's load(): the "
          "others "
          "wait for this rank in the new world; end the process, they go on without it");
    }
    try {
      const bool repeats = next == ElasticMember::Next::kRepeat;
      member_->on_returned(!(repeats ? repeat(function) : call(function)));
    } catch (const Error& error) {
      if (!member_->is_world_over(std::current_exception())) throw;
      LogMessage(LogLevel::kInfo) << "step " << step_.number() << " is interrupted"
                                  << (step_.is_committed() ? " after its commit: " : ": ")
                                  << error.what();
    }
  }
  if (member_->is_finished()) return;
  if (checkpoints_) checkpoints_->leave_world();
  LogMessage(LogLevel::kInfo) << "this rank is not needed any more";
  std::cout.flush();
  std::fflush(nullptr);
  std::_Exit(0);
}

// The same step once more on all members, also on those that were not there: its shards are done.
bool JobLoop::repeat(const std::function<bool(Step& step)>& function) {
  tell_world();
  const ShardedStep::Repetition repetition(step_);
  Step step = step_.front();
  const bool goes_on = function(step) && !member_->has_ended();
  end_function(goes_on);
  return goes_on;
}

void JobLoop::run(const std::function<bool(Step& step)>& function) {
  refuse_within_run("run()");
  is_running_ = true;
  struct Ends {
    bool& is_running;
    ~Ends() { is_running = false; }
  } const ends{is_running_};
  if (member_) return run_member(function);
  while (call(function)) {
  }
}

// Whether the program wants another step.
bool JobLoop::call(const std::function<bool(Step& step)>& function) {
  tell_world();
  step_.begin();
  try {
    Step step = step_.front();
    const bool goes_on = function(step);
    end_function(goes_on);
    if (step_.is_committed()) return goes_on;
    if (!goes_on && !step_.has_shards()) {  // nothing was left to do
      step_.drop();
      const std::int64_t last = step_.state().next_step - 1;
      if (checkpoints_ && last > 0) checkpoints_->on_last_step(last);
      if (member_) member_->on_exchanged(/*wants_change=*/false);
      return false;
    }
    throw InvalidArgument("step " + std::to_string(step_.number()) +
                          " has returned without a commit()");
  } catch (...) {
    if (!step_.is_committed()) step_.drop();
    throw;
  }
}

// Still a part of what the function does after its commit: done again where others were lost in it.
void JobLoop::end_function(bool goes_on) {
  // Who has forgotten its commit() is told so.
  if (!goes_on && (step_.is_committed() || !step_.has_shards())) end_together();
  if (!checkpoints_ || !step_.is_committed()) return;
  goes_on ? checkpoints_->on_step(step_.number()) : checkpoints_->on_last_step(step_.number());
}

// A rank that ended alone would be waited for in the next step of the others.
void JobLoop::end_together() {
  if (communicator_->size() == 1) return;
  try {
    communicator_->barrier();
  } catch (const MismatchError& error) {
    throw MismatchError("the function of run() has returned false on rank " +
                        std::to_string(communicator_->rank()) + " in step " +
                        std::to_string(step_.number()) + ", and not on all ranks: " + error.what());
  }
}

}  // namespace chainmail::internal
