// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the launcher and the members of an elastic job say to each other. Each carries the
// generation that it belongs to; the receiver drops those of others.
//
// Plain structs; any thread. How they look as bytes is not decided here. `fields` lists the members
// of each once, for traces, digests and comparison.

#pragma once

#include <optional>
#include <string_view>
#include <variant>

#include "base/membership/types.h"

namespace chainmail::membership {

// Launcher -> member.

/// A planned change is wanted: the next step's lane says so to all.
struct Wanted {
  static constexpr std::string_view kName = "wanted";
  Generation generation = 0;
  static void fields(auto& archive, auto& m) { archive("generation", m.generation); }
  bool operator==(const Wanted&) const = default;
};

/// WORLD. With `start` the world begins at once, without it the receiver answers MyState and waits
/// for Resume. Who is not among the members waits as a spare.
struct NewWorld {
  static constexpr std::string_view kName = "world";
  WorldPtr world;
  std::optional<Start> start;
  static void fields(auto& archive, auto& m) {
    archive("world", m.world);
    archive("start", m.start);
  }
  bool operator==(const NewWorld& other) const {
    return *world == *other.world && start == other.start;
  }
};

/// RESUME: all states are known, the world begins.
struct Resume {
  static constexpr std::string_view kName = "resume";
  Generation generation = 0;
  Start start;
  static void fields(auto& archive, auto& m) {
    archive("generation", m.generation);
    archive("start", m.start);
  }
  bool operator==(const Resume&) const = default;
};

/// LEAVE: the receiver is needed no longer and ends with exit code 0.
struct Leave {
  static constexpr std::string_view kName = "leave";
  Generation generation = 0;
  static void fields(auto& archive, auto& m) { archive("generation", m.generation); }
  bool operator==(const Leave&) const = default;
};

/// Write the committed state to disk and answer Saved.
struct Save {
  static constexpr std::string_view kName = "save";
  Generation generation = 0;
  static void fields(auto& archive, auto& m) { archive("generation", m.generation); }
  bool operator==(const Save&) const = default;
};

using LauncherMessage = std::variant<Wanted, NewWorld, Resume, Leave, Save>;

// Member -> launcher.

/// A newcomer's model is built and its sockets listen; it waits for a world.
struct Ready {
  static constexpr std::string_view kName = "ready";
  std::uint64_t fingerprint = 0;  ///< of build, options, names and shapes of the state
  static void fields(auto& archive, auto& m) { archive("fingerprint", m.fingerprint); }
  bool operator==(const Ready&) const = default;
};

/// HELD: `step` is committed and nothing new begun. The old group is still served.
struct Held {
  static constexpr std::string_view kName = "held";
  Generation generation = 0;
  StepNumber step = 0;
  bool is_finished = false;  ///< the program wants no further step
  static void fields(auto& archive, auto& m) {
    archive("generation", m.generation);
    archive("step", m.step);
    archive("is_finished", m.is_finished);
  }
  bool operator==(const Held&) const = default;
};

/// STATE: the answer to a NewWorld without `start`. Everything older is fenced off.
struct MyState {
  static constexpr std::string_view kName = "state";
  Generation generation = 0;
  std::optional<StepNumber> step;  ///< nothing where no whole state is there
  static void fields(auto& archive, auto& m) {
    archive("generation", m.generation);
    archive("step", m.step);
  }
  bool operator==(const MyState&) const = default;
};

/// FETCHED: the state of the start is here, whole and checked.
struct Fetched {
  static constexpr std::string_view kName = "fetched";
  Generation generation = 0;
  std::uint64_t bytes = 0;
  StepNumber step = 0;  ///< that it is of: without donors, whatever the checkpoint is of
  static void fields(auto& archive, auto& m) {
    archive("generation", m.generation);
    archive("bytes", m.bytes);
    archive("step", m.step);
  }
  bool operator==(const Fetched&) const = default;
};

/// From rank 0: the first step of this generation is committed. Its owner, who has a clock, sets
/// the pause.
struct Running {
  static constexpr std::string_view kName = "running";
  Generation generation = 0;
  StepNumber step = 0;
  std::uint64_t pause_ms = 0;  ///< since the last commit before, less a usual step
  static void fields(auto& archive, auto& m) {
    archive("generation", m.generation);
    archive("step", m.step);
    archive("pause_ms", m.pause_ms);
  }
  bool operator==(const Running&) const = default;
};

/// A collective failed because of `peer`.
struct Accuse {
  static constexpr std::string_view kName = "accuse";
  Generation generation = 0;
  MemberId peer = 0;
  static void fields(auto& archive, auto& m) {
    archive("generation", m.generation);
    archive("peer", m.peer);
  }
  bool operator==(const Accuse&) const = default;
};

/// The answer to Save, when the set is whole on disk.
struct Saved {
  static constexpr std::string_view kName = "saved";
  StepNumber step = 0;
  static void fields(auto& archive, auto& m) { archive("step", m.step); }
  bool operator==(const Saved&) const = default;
};

using MemberMessage = std::variant<Ready, Held, MyState, Fetched, Running, Accuse, Saved>;

}  // namespace chainmail::membership
