// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What MemberMachine takes in, and what it asks its owner to do.
//
// Plain structs; any thread. Whoever owns the machine gives it events one after the other and
// carries out the actions of each in their order before the next.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "base/membership/messages.h"
#include "base/membership/types.h"

namespace chainmail::membership {

// Events.

/// The model is built and its sockets listen.
struct ProgramReady {
  static constexpr std::string_view kName = "program_ready";
  std::uint64_t fingerprint = 0;
  static void fields(auto& archive, auto& e) { archive("fingerprint", e.fingerprint); }
};
struct Told {
  static constexpr std::string_view kName = "told";
  LauncherMessage message;
  static void fields(auto& archive, auto& e) { archive("message", e.message); }
};
/// All buckets of the step are complete, and with the last one its lane.
struct Exchanged {
  static constexpr std::string_view kName = "exchanged";
  Generation generation = 0;
  StepNumber step = 0;
  bool is_change_wanted = false;  ///< the lane's sum is not 0
  static void fields(auto& archive, auto& e) {
    archive("generation", e.generation);
    archive("step", e.step);
    archive("is_change_wanted", e.is_change_wanted);
  }
};
/// The program's function has returned from the step that was committed last.
struct StepReturned {
  static constexpr std::string_view kName = "step_returned";
  bool is_finished = false;  ///< it wants no further step
  static void fields(auto& archive, auto& e) { archive("is_finished", e.is_finished); }
};
/// A collective, a fetch or the making of the group failed because of `peer`.
struct PeerFailed {
  static constexpr std::string_view kName = "peer_failed";
  Generation generation = 0;
  MemberId peer = 0;
  static void fields(auto& archive, auto& e) {
    archive("generation", e.generation);
    archive("peer", e.peer);
  }
};
/// The state that FetchState asked for is here, and its digests are right.
struct StateFetched {
  static constexpr std::string_view kName = "state_fetched";
  Generation generation = 0;
  StepNumber step = 0;         ///< of the start; without donors, of the checkpoint that was read
  std::uint64_t position = 0;  ///< of the donors
  bool is_finished = false;    ///< of the donors
  std::uint64_t bytes = 0;
  /// The donors' functions have not returned from the step, or do again what follows its commit.
  bool is_in_function = false;
  static void fields(auto& archive, auto& e) {
    archive("generation", e.generation);
    archive("step", e.step);
    archive("position", e.position);
    archive("is_finished", e.is_finished);
    archive("bytes", e.bytes);
    archive("is_in_function", e.is_in_function);
  }
};
/// The set that SaveState asked for is whole on disk.
struct StateSaved {
  static constexpr std::string_view kName = "state_saved";
  static void fields(auto& /*archive*/, auto& /*e*/) {}
};
/// The agent says that the launcher is gone (it saw the end of its channel).
struct LauncherGone {
  static constexpr std::string_view kName = "launcher_gone";
  static void fields(auto& /*archive*/, auto& /*e*/) {}
};
/// The agent has chosen this member to write the last will for its host.
struct WriteWill {
  static constexpr std::string_view kName = "write_will";
  static void fields(auto& /*archive*/, auto& /*e*/) {}
};
/// The time that StartGrace asked for is over.
struct GraceElapsed {
  static constexpr std::string_view kName = "grace_elapsed";
  static void fields(auto& /*archive*/, auto& /*e*/) {}
};

using MemberEvent = std::variant<ProgramReady, Told, Exchanged, StepReturned, PeerFailed,
                                 StateFetched, StateSaved, LauncherGone, WriteWill, GraceElapsed>;

// Actions.

struct Send {
  static constexpr std::string_view kName = "send";
  MemberMessage message;
  static void fields(auto& archive, auto& a) { archive("message", a.message); }
  bool operator==(const Send&) const = default;
};
/// Close the sockets and unmap the memory of this generation; nothing of it is used again.
struct Fence {
  static constexpr std::string_view kName = "fence";
  Generation generation = 0;
  static void fields(auto& archive, auto& a) { archive("generation", a.generation); }
  bool operator==(const Fence&) const = default;
};
/// Make the group of `world`. Its memory and keys are named after `segment`, which no other
/// generation has.
struct Connect {
  static constexpr std::string_view kName = "connect";
  WorldPtr world;
  Generation segment = 0;
  static void fields(auto& archive, auto& a) {
    archive("world", a.world);
    archive("segment", a.segment);
  }
  bool operator==(const Connect& other) const {
    return *world == *other.world && segment == other.segment;
  }
};
/// Overwrite the state by that of `start`: from its donors, its checkpoint, or made anew.
struct FetchState {
  static constexpr std::string_view kName = "fetch";
  Generation generation = 0;
  Start start;
  static void fields(auto& archive, auto& a) {
    archive("generation", a.generation);
    archive("start", a.start);
  }
  bool operator==(const FetchState&) const = default;
};
/// Run the program's function for step `step` (the first one is 1).
struct BeginStep {
  static constexpr std::string_view kName = "begin_step";
  Generation generation = 0;
  StepNumber step = 0;
  std::uint64_t position = 0;     ///< samples that are committed
  bool is_change_wanted = false;  ///< what this rank adds to the lane of the last bucket
  static void fields(auto& archive, auto& a) {
    archive("generation", a.generation);
    archive("step", a.step);
    archive("position", a.position);
    archive("is_change_wanted", a.is_change_wanted);
  }
  bool operator==(const BeginStep&) const = default;
};
/// Optimizer step, counters, metrics: the step has happened, on all or on none.
struct Commit {
  static constexpr std::string_view kName = "commit";
  Generation generation = 0;
  StepNumber step = 0;
  std::uint64_t position = 0;  ///< afterwards
  static void fields(auto& archive, auto& a) {
    archive("generation", a.generation);
    archive("step", a.step);
    archive("position", a.position);
  }
  bool operator==(const Commit&) const = default;
};
struct SaveState {
  static constexpr std::string_view kName = "save_state";
  StepNumber step = 0;
  static void fields(auto& archive, auto& a) { archive("step", a.step); }
  bool operator==(const SaveState&) const = default;
};
/// To the agent, after LauncherGone: what this member could save. Its group is served on.
struct ReportWill {
  static constexpr std::string_view kName = "report_will";
  std::optional<StepNumber> step;
  static void fields(auto& archive, auto& a) { archive("step", a.step); }
  bool operator==(const ReportWill&) const = default;
};
/// A GraceElapsed after `duration`, twice: for the step under way, and for the saving.
struct StartGrace {
  static constexpr std::string_view kName = "start_grace";
  std::chrono::milliseconds duration{0};
  static void fields(auto& archive, auto& a) { archive("duration", a.duration); }
  bool operator==(const StartGrace&) const = default;
};
struct Exit {
  static constexpr std::string_view kName = "exit";
  int code = 0;
  static void fields(auto& archive, auto& a) { archive("code", a.code); }
  bool operator==(const Exit&) const = default;
};

using MemberAction = std::variant<Send, Fence, Connect, FetchState, BeginStep, Commit, SaveState,
                                  ReportWill, StartGrace, Exit>;
using MemberActions = std::vector<MemberAction>;

}  // namespace chainmail::membership
