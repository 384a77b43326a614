// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/member/elastic_member.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include <chainmail/train/agreed_error.h>

#include "base/error.h"
#include "base/log.h"

namespace chainmail::internal {

using membership::MemberAction;
using membership::MemberActions;
using membership::MemberEvent;
using membership::NewWorld;
using membership::Resume;
using membership::Start;
using membership::World;

namespace {

// For the launcher to hear of a death, and to announce the next world.
constexpr std::chrono::milliseconds kNewsTime{10000};
// From a process's last connection to its end: libtorch may take more than half a second for it.
constexpr std::chrono::milliseconds kEndTime{2000};

const NewWorld* new_world_in(const std::optional<LauncherClient::MemberWord>& word) {
  if (!word) return nullptr;
  const auto* const of_launcher = std::get_if<membership::LauncherWord>(&*word);
  return of_launcher == nullptr ? nullptr : std::get_if<NewWorld>(&of_launcher->message);
}

std::exception_ptr changed(membership::Generation generation) {
  return std::make_exception_ptr(
      PeerError("the job goes on in world " + std::to_string(generation)));
}

bool is_end(const std::optional<LauncherClient::MemberWord>& word) {
  return word && std::holds_alternative<membership::LauncherGone>(*word);
}

/// All members have found that among themselves.
bool is_agreed(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const AgreedError&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// The member whom `error` is about; nobody where it names none.
std::optional<int> culprit_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PeerError& failure) {
    return failure.peer_rank() >= 0 ? std::optional(failure.peer_rank()) : std::nullopt;
  } catch (const TimeoutError& failure) {
    return failure.missing_ranks().empty() ? std::nullopt
                                           : std::optional(failure.missing_ranks().front());
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

}  // namespace

ElasticMember::ElasticMember(std::shared_ptr<LauncherClient> launcher, std::uint64_t batch,
                             Callbacks callbacks)
    : launcher_(std::move(launcher)),
      callbacks_(std::move(callbacks)),
      machine_(
          launcher_->welcome().rank,
          {.batch = batch, .grace = std::chrono::milliseconds(launcher_->welcome().grace_ms)}) {
  launcher_->listen([this](auto word) { on_word(std::move(word)); });
}

ElasticMember::~ElasticMember() { launcher_->listen({}); }

void ElasticMember::announce(std::uint64_t fingerprint) {
  {
    const std::lock_guard lock(mutex_);
    hears_ = true;
  }
  if (std::exchange(is_announced_, true)) return;
  handle(membership::ProgramReady{fingerprint});
}

void ElasticMember::stop_hearing() noexcept {
  bool is_asked = false;
  {
    const std::lock_guard lock(mutex_);
    is_asked = std::exchange(hears_, false) && std::ranges::any_of(words_, is_end);
  }
  if (is_asked) send_empty_will();
}

void ElasticMember::send_empty_will() noexcept {
  try {
    launcher_->send_will({});
  } catch (const std::exception& error) {
    log_line(LogLevel::kInfo,
             std::string("cannot say that there is nothing to save: ") + error.what());
  }
}

// In the launcher client's thread: whoever waits in a collective of a world that is over need not.
void ElasticMember::on_word(std::optional<Word> word) {
  std::vector<std::weak_ptr<ops::Group>> over;
  membership::Generation next = 0;
  bool is_deaf = false;
  {
    const std::lock_guard lock(mutex_);
    const NewWorld* const world = new_world_in(word);
    if (world != nullptr && !world->start) {
      over = groups_;
      next = world->world->generation;
    }
    is_deaf = is_end(word) && !hears_;
    words_.push_back(std::move(word));
    changed_.notify_all();
  }
  if (is_deaf) send_empty_will();
  for (const auto& one : over) {
    const auto group = one.lock();
    if (group && !group->error()) group->abort(changed(next));
  }
}

// False when none has come within `limit`.
bool ElasticMember::wait_for_word(std::optional<std::chrono::milliseconds> limit) {
  std::unique_lock lock(mutex_);
  const auto is_there = [this] { return !words_.empty(); };
  if (limit) return changed_.wait_for(lock, *limit, is_there);
  changed_.wait(lock, is_there);
  return true;
}

bool ElasticMember::has_word() {
  const std::lock_guard lock(mutex_);
  return !words_.empty();
}

void ElasticMember::hear_next() {
  std::optional<Word> word;
  {
    const std::lock_guard lock(mutex_);
    word = std::move(words_.front());
    words_.pop_front();
  }
  if (!word) throw PeerError("this elastic job is being ended, or its launcher is gone");
  std::visit([this](const auto& one) { hear(one); }, *word);
}

ElasticMember::Next ElasticMember::wait(std::optional<std::chrono::milliseconds> limit) {
  while (!has_step_ && !has_exited_ && !repeats_ && !start_) {
    if (!wait_for_word(limit)) return Next::kNothing;
    hear_next();
  }
  if (has_exited_) return Next::kEnd;
  if (start_) return Next::kWorld;
  if (std::exchange(repeats_, false)) return Next::kRepeat;
  has_step_ = false;
  is_computing_ = true;
  return Next::kStep;
}

void ElasticMember::hear(const membership::LauncherWord& word) {
  handle(membership::Told{word.message});
  std::optional<Start> start;
  membership::Generation generation = 0;
  if (const auto* const world = std::get_if<NewWorld>(&word.message)) {
    start = world->start;
    generation = world->world->generation;
    has_loss_ = has_loss_ || !start;
    if (!world_) is_in_function_ = repeats_ = false;  // it has none of this member
  } else if (const auto* const resume = std::get_if<Resume>(&word.message)) {
    start = resume->start;
    generation = resume->generation;
  }
  if (!start || !world_ || world_->generation != generation) return;
  start_ = start;
  launcher_->begin_step(generation, start->step);
  if (callbacks_.enter) begin_world();
}

std::vector<int> ElasticMember::donors() const {
  std::vector<int> donors;
  for (const membership::MemberId donor : start_->donors) {
    if (const auto rank = world_->rank_of(donor)) donors.push_back(static_cast<int>(*rank));
  }
  std::ranges::sort(donors);
  // Before the first step all have a state, and rank 0's counts.
  if (donors.empty()) donors = {0};
  return donors;
}

void ElasticMember::on_entered(const std::shared_ptr<ops::Group>& group) {
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_entered_, true)) groups_.clear();
    std::erase_if(groups_, [](const auto& one) { return one.expired(); });
    groups_.push_back(group);
  }
  // Others may have left this world already.
  if (knows_of_newer_world() && !group->error()) group->abort(changed(machine_.generation()));
}

void ElasticMember::on_begun(std::uint64_t position, bool is_finished, std::uint64_t bytes,
                             std::uint64_t step) {
  start_.reset();
  if (!fetch_) return;
  const membership::FetchState fetch = *std::exchange(fetch_, std::nullopt);
  if (!fetch.start.donors.empty()) step = fetch.start.step;
  handle(membership::StateFetched{fetch.generation, step, position, is_finished, bytes,
                                  is_in_function_});
}

// No step is under way here: the last one has been committed, or dropped.
void ElasticMember::hear(const membership::LauncherGone& word) {
  is_launcher_gone_ = true;
  has_step_ = is_computing_ = repeats_ = false;
  start_.reset();
  handle(word);
  handle(membership::GraceElapsed{});
}

void ElasticMember::hear(const membership::WriteWill& word) { handle(word); }

void ElasticMember::save() {
  if (!callbacks_.save)
    throw PeerError("this elastic job has to end; its state is in its own checkpoints");
  callbacks_.save();
  handle(membership::StateSaved{});
  if (is_launcher_gone_) launcher_->send_will({true, machine_.committed().value_or(0), true});
}

// Whatever the machine wants next, the others of the world wait for this member: in making the
// group, and where somebody fetches the state.
void ElasticMember::begin_world() {
  try {
    if (!is_entered_) {
      callbacks_.enter(*world_);
      on_entered(callbacks_.group());
    }
    const std::vector<int> holders = donors();
    const bool is_anew = begins_anew();
    const std::uint64_t first = is_anew ? callbacks_.begin_anew() : 0;
    const bool is_first = is_anew && world_->rank_of(machine_.id()) == 0U;
    const bool is_altered = is_anew && callbacks_.any(is_first && is_altered_);
    std::uint64_t held = is_anew ? 0 : position();
    bool has_finished = !is_anew && is_finished();
    std::uint64_t bytes = 0;
    if (fetch_ && !is_anew) is_altered_ = true;
    if (holders.size() < world_->members.size()) {
      bytes = callbacks_.transfer(holders, held, has_finished);
    }
    if (is_anew) is_altered_ = is_altered;
    // Nobody knows how far those who were lost had come with what follows their last commit.
    const bool may_be_undone = has_loss_ && start_->step > 0 && !start_->donors.empty();
    const bool repeats = callbacks_.any(is_in_function_ || may_be_undone);
    // Those of whom the program has wanted no further step wait for none that others begin.
    const bool has_ended = repeats && callbacks_.any(has_finished);
    // Whoever is lost in this is lost before the world has begun: who has read a checkpoint, or a
    // part of it, then reads it again.
    const std::uint64_t step = callbacks_.tell();
    if (is_altered && callbacks_.any(is_first && step == first))
      throw std::runtime_error(kNoBeginning);
    repeats_ = repeats;
    has_ended_ = has_ended;
    has_loss_ = false;
    if (fetch_) is_in_function_ = repeats_;
    on_begun(held, has_finished, bytes, step);
  } catch (const Error& error) {
    LogMessage(LogLevel::kInfo) << "world " << machine_.generation()
                                << " cannot begin: " << error.what();
    if (!is_world_over(std::current_exception())) throw;
  }
}

bool ElasticMember::has_word_of_newer_world() const {
  return std::ranges::any_of(words_, [this](const auto& word) {
    const NewWorld* const world = new_world_in(word);
    return world != nullptr && world->world->generation > machine_.generation();
  });
}

bool ElasticMember::knows_of_newer_world() {
  const std::lock_guard lock(mutex_);
  return has_word_of_newer_world();
}

// In a group of the program's own others are missed before the world's group has anything to do.
// False where nothing is heard of that.
bool ElasticMember::hears_of_newer_world(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const bool is_told = changed_.wait_for(lock, limit, [&] {
    return has_word_of_newer_world() ||
           std::ranges::any_of(words_, [](const auto& word) { return !word || is_end(word); });
  });
  return is_told && has_word_of_newer_world();
}

bool ElasticMember::has_lost_launcher() {
  const std::lock_guard lock(mutex_);
  return is_launcher_gone_ || std::ranges::any_of(words_, is_end);
}

/// Those of this world that are there.
std::vector<std::shared_ptr<ops::Group>> ElasticMember::groups() {
  std::vector<std::shared_ptr<ops::Group>> groups;
  const std::lock_guard lock(mutex_);
  for (const auto& one : groups_) {
    if (auto group = one.lock()) groups.push_back(std::move(group));
  }
  return groups;
}

std::exception_ptr ElasticMember::error_of_world() {
  for (const auto& group : groups()) {
    if (auto error = group->error()) return error;
  }
  return nullptr;
}

// The launcher makes another world when a member is lost or blamed; an error that names none, and
// of which it has not heard, is this member's own. What all have found is that of each, also of one
// that hears how the others have ended before it comes here.
bool ElasticMember::is_world_over(const std::exception_ptr& error) {
  if (is_agreed(error)) return false;
  const auto culprit = culprit_of(error);
  // What it was told of may have shown in a group of the program's first.
  const auto is_told = [this] { return has_lost_launcher() || knows_of_newer_world(); };
  if (!is_told()) {
    if (!culprit) return false;
    const bool is_own = is_entered_ && !error_of_world() && !hears_of_newer_world(kNewsTime);
    if (is_own && !is_told()) return false;
  }
  has_step_ = is_computing_ = repeats_ = false;
  start_.reset();
  if (culprit && !has_lost_launcher()) {
    std::vector<int> accused = silent();
    if (accused.empty()) {
      // It has closed its connections: of its end the launcher hears by itself, and how it was.
      if (!is_told()) (void)hears_of_newer_world(kEndTime);
      accused = {*culprit};
    }
    for (const int peer : accused) {
      handle(
          membership::PeerFailed{machine_.generation(), static_cast<membership::MemberId>(peer)});
    }
  }
  return true;
}

// Whom an error names may be whom somebody else has named; who does not answer this member itself
// is known better, and may be several.
std::vector<int> ElasticMember::silent() {
  std::vector<int> silent;
  for (const auto& group : groups()) {
    const auto& silence = group->options().silence;
    const auto found = silence ? silence->silent() : std::vector<int>{};
    silent.insert(silent.end(), found.begin(), found.end());
  }
  std::sort(silent.begin(), silent.end());
  silent.erase(std::unique(silent.begin(), silent.end()), silent.end());
  return silent;
}

void ElasticMember::on_called_again() {
  if (is_in_function_) return on_returned(false);
  has_step_ = has_step_ || std::exchange(is_computing_, false);
}

void ElasticMember::on_exchanged(bool wants_change) {
  is_altered_ = true;
  is_in_function_ = true;
  is_computing_ = false;
  const auto took = std::chrono::steady_clock::now() - returned_at_;
  const auto before = std::exchange(measured_generation_, step_.generation);
  // The first step of a world has the pause in it, but for a member's first world, before which it
  // did not train.
  if (before == step_.generation) {
    usual_step_ = took;
  } else if (before != 0) {
    pause_ = std::max(took - usual_step_, std::chrono::steady_clock::duration::zero());
  }
  handle(membership::Exchanged{step_.generation, step_.step, wants_change});
}

// What was heard meanwhile counts for the step that may come next.
void ElasticMember::on_returned(bool is_finished) {
  if (!std::exchange(is_in_function_, false)) return;
  returned_at_ = std::chrono::steady_clock::now();
  while (has_word() && !start_) hear_next();
  handle(membership::StepReturned{is_finished});
}

void ElasticMember::handle(const MemberEvent& event) {
  MemberActions actions;
  machine_.on(event, actions);
  for (const MemberAction& action : actions) act(action);
}

void ElasticMember::act(const MemberAction& action) {
  if (const auto* const send = std::get_if<membership::Send>(&action)) {
    membership::MemberMessage message = send->message;
    if (auto* const running = std::get_if<membership::Running>(&message)) {
      const auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(pause_);
      running->pause_ms = static_cast<std::uint64_t>(pause.count());
    }
    launcher_->send_to_launcher(message);
  } else if (std::holds_alternative<membership::Fence>(action)) {
    callbacks_.leave(changed(machine_.generation()));
    is_entered_ = false;
    start_.reset();
    fetch_.reset();
    world_.reset();
  } else if (const auto* const connect = std::get_if<membership::Connect>(&action)) {
    world_ = connect->world;
    is_entered_ = false;
  } else if (const auto* const fetch = std::get_if<membership::FetchState>(&action)) {
    fetch_ = *fetch;
  } else if (const auto* const begin = std::get_if<membership::BeginStep>(&action)) {
    step_ = *begin;
    has_step_ = true;
    launcher_->begin_step(begin->generation, begin->step);
  } else if (std::holds_alternative<membership::SaveState>(action)) {
    save();
  } else if (const auto* const will = std::get_if<membership::ReportWill>(&action)) {
    // Before the first step there is nothing that would be lost.
    const membership::StepNumber step = will->step.value_or(0);
    const bool has_state = step > 0 && callbacks_.can_save && callbacks_.can_save(step);
    launcher_->send_will({has_state, step, false});
  } else if (std::holds_alternative<membership::Exit>(action)) {
    has_exited_ = true;
    stop_hearing();
  }
}

}  // namespace chainmail::internal
