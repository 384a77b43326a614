// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank's side of an elastic job: which step it has committed, and in which world it takes part.
//
// Pure: an event in, actions out. No clock, thread, socket or chance. One thread.
//
// The rule of commit: a step is committed when all its buckets are complete, without a message. A
// member that sends anything of step t + 1 has committed t, so the members of a world are at most
// one step apart, and who is behind fetches the state. A member that is held, or has reported its
// last will, goes on serving its group until it is told of the next world or to leave.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/membership/member/member_events.h"
#include "base/membership/types.h"

namespace chainmail::membership {

struct MemberOptions {
  std::uint64_t batch = 1;                ///< samples of a step, of all ranks together
  std::chrono::milliseconds grace{5000};  ///< --grace: for the step under way, and for the saving

  static void fields(auto& archive, auto& o) {
    archive("batch", o.batch);
    archive("grace", o.grace);
  }
};

class MemberMachine {
 public:
  enum class Status {
    kBuilding,
    kSpare,   ///< ready, of no world
    kFenced,  ///< of a world that waits for Resume
    kFetching,
    kComputing,  ///< a step is under way
    kCommitted,  ///< a step is committed, the program's function has not returned from it
    kHeld,
    kSaving,
    kLastWill,  ///< the launcher is gone; the state is reported
    kExited,
  };

  MemberMachine(MemberId id, const MemberOptions& options) : options_(options), id_(id) {}

  /// Appends what is to be done about `event`.
  void on(const MemberEvent& event, MemberActions& actions);

  [[nodiscard]] MemberId id() const noexcept { return id_; }
  [[nodiscard]] Status status() const noexcept { return status_; }
  [[nodiscard]] Generation generation() const noexcept { return generation_; }
  /// What it has committed; nothing while the state is not whole.
  [[nodiscard]] std::optional<StepNumber> committed() const noexcept {
    return has_state_ ? std::optional(committed_) : std::nullopt;
  }
  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  [[nodiscard]] bool is_finished() const noexcept { return is_finished_; }
  /// Of all that later answers depend on: equal digests, equal behaviour.
  [[nodiscard]] std::uint64_t digest() const;

 private:
  void handle(const ProgramReady& event);
  void handle(const Told& event);
  void handle(const Exchanged& event);
  void handle(const StepReturned& event);
  void handle(const PeerFailed& event);
  void handle(const StateFetched& event);
  void handle(const StateSaved& event);
  void handle(const LauncherGone& event);
  void handle(const WriteWill& event);
  void handle(const GraceElapsed& event);

  void obey(const Wanted& message);
  void obey(const NewWorld& message);
  void obey(const Resume& message);
  void obey(const Leave& message);
  void obey(const Save& message);

  void enter_group();
  void begin_world(const Start& start);
  void go_on();
  void begin_step();
  void report_will();
  void exit();

  template <typename T>
  void act(T action) {
    actions_->emplace_back(std::move(action));
  }

  const MemberOptions options_;
  const MemberId id_;
  Status status_ = Status::kBuilding;
  WorldPtr world_;
  Generation generation_ = 0;        ///< of the newest world that it was told of
  Generation group_generation_ = 0;  ///< of the group that is connected
  bool has_state_ = false;
  StepNumber committed_ = 0;
  std::uint64_t position_ = 0;
  bool is_finished_ = false;            ///< the program wants no step after committed_
  bool is_wanted_ = false;              ///< to be said in the next step's lane
  bool is_boundary_ = false;            ///< the lane of the committed step said: a change is wanted
  bool is_first_step_ = false;          ///< no step is committed in this world yet
  bool is_returned_ = true;             ///< the program's function, from the last committed step
  std::optional<Start> waiting_start_;  ///< of a world that begins when it has
  bool is_launcher_gone_ = false;
  bool is_grace_over_ = false;
  MemberActions* actions_ = nullptr;  // only during on()
};

}  // namespace chainmail::membership
