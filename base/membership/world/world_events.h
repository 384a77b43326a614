// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What WorldMachine takes in, and what it asks its owner to do.
//
// Plain structs; any thread. Whoever owns the machine gives it events one after the other and
// carries out the actions of each in their order before the next.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/membership/messages.h"
#include "base/membership/records.h"
#include "base/membership/types.h"

namespace chainmail::membership {

/// Traces have these as numbers: new ones come last.
enum class WorldTimer {
  kWindow,          ///< planned changes have been gathered
  kSpacing,         ///< subject: generation; its beginning is long enough ago for the next one
  kReports,         ///< subject: generation
  kStopped,         ///< subject: member
  kDrain,           ///< subject: member
  kCoolDown,        ///< subject: host
  kSettled,         ///< subject: host; its members have taken part since it last had to wait
  kPrepare,         ///< subject: host
  kElasticTimeout,  ///< subject: generation
  kReplies,         ///< subject: generation; somebody waits for the next world
};

// Events.

struct HostLine {
  std::string address;
  std::uint32_t slots = 1;
  static void fields(auto& archive, auto& line) {
    archive("address", line.address);
    archive("slots", line.slots);
  }
  bool operator==(const HostLine&) const = default;
};

/// The hosts file has new, valid contents. Hosts are named once.
struct HostsRead {
  static constexpr std::string_view kName = "hosts_read";
  std::vector<HostLine> lines;
  static void fields(auto& archive, auto& e) { archive("lines", e.lines); }
};
struct PrepareEnded {
  static constexpr std::string_view kName = "prepare_ended";
  HostId host = 0;
  bool has_succeeded = false;
  std::string cause;            ///< "exited with code 1"
  bool is_unreachable = false;  ///< no agent is there, or no more: tried again, as after HostLost
  static void fields(auto& archive, auto& e) {
    archive("host", e.host);
    archive("has_succeeded", e.has_succeeded);
    archive("cause", e.cause);
    archive("is_unreachable", e.is_unreachable);
  }
};
struct MemberSaid {
  static constexpr std::string_view kName = "said";
  MemberId from = 0;
  MemberMessage message;
  static void fields(auto& archive, auto& e) {
    archive("from", e.from);
    archive("message", e.message);
  }
};
/// Its agent has seen the process end.
struct MemberEnded {
  static constexpr std::string_view kName = "ended";
  MemberId member = 0;
  int code = 0;       ///< 128 + signal where a signal ended it
  std::string cause;  ///< "killed by signal 9"
  static void fields(auto& archive, auto& e) {
    archive("member", e.member);
    archive("code", e.code);
    archive("cause", e.cause);
  }
};
/// SIGSTOP and its like, and SIGCONT.
struct MemberStopped {
  static constexpr std::string_view kName = "stopped";
  MemberId member = 0;
  bool is_stopped = true;
  static void fields(auto& archive, auto& e) {
    archive("member", e.member);
    archive("is_stopped", e.is_stopped);
  }
};
/// Its agent is out of reach, or a collective's deadline names it.
struct HostLost {
  static constexpr std::string_view kName = "host_lost";
  HostId host = 0;
  std::string cause;
  static void fields(auto& archive, auto& e) {
    archive("host", e.host);
    archive("cause", e.cause);
  }
};
/// The host announces its end (spot notice, SIGTERM of its agent): like the removal of its line,
/// but for base hosts too.
struct HostLeaving {
  static constexpr std::string_view kName = "host_leaving";
  HostId host = 0;
  static void fields(auto& archive, auto& e) { archive("host", e.host); }
};
/// The costs of a shard on the members, in any unit, in the order of the current world.
struct Rebalance {
  static constexpr std::string_view kName = "rebalance";
  Generation generation = 0;
  std::vector<std::uint32_t> weights;
  static void fields(auto& archive, auto& e) {
    archive("generation", e.generation);
    archive("weights", e.weights);
  }
};
struct WorldTimerElapsed {
  static constexpr std::string_view kName = "elapsed";
  WorldTimer timer = WorldTimer::kWindow;
  std::uint32_t subject = 0;
  static void fields(auto& archive, auto& e) {
    archive("timer", e.timer);
    archive("subject", e.subject);
  }
};

using WorldEvent = std::variant<HostsRead, PrepareEnded, MemberSaid, MemberEnded, MemberStopped,
                                HostLost, HostLeaving, Rebalance, WorldTimerElapsed>;

// Actions.

struct Tell {
  static constexpr std::string_view kName = "tell";
  MemberId to = 0;
  LauncherMessage message;
  static void fields(auto& archive, auto& a) {
    archive("to", a.to);
    archive("message", a.message);
  }
  bool operator==(const Tell&) const = default;
};
/// Run --prepare on the host, or end it where `is_running` is false.
struct Prepare {
  static constexpr std::string_view kName = "prepare";
  HostId host = 0;
  bool is_running = true;
  static void fields(auto& archive, auto& a) {
    archive("host", a.host);
    archive("is_running", a.is_running);
  }
  bool operator==(const Prepare&) const = default;
};
struct StartMember {
  static constexpr std::string_view kName = "start";
  MemberId member = 0;
  HostId host = 0;
  static void fields(auto& archive, auto& a) {
    archive("member", a.member);
    archive("host", a.host);
  }
  bool operator==(const StartMember&) const = default;
};
/// SIGKILL by its agent, where that can be reached.
struct EndMember {
  static constexpr std::string_view kName = "end";
  MemberId member = 0;
  static void fields(auto& archive, auto& a) { archive("member", a.member); }
  bool operator==(const EndMember&) const = default;
};
/// A WorldTimerElapsed after `duration`; it replaces one of the same timer and subject.
struct StartWorldTimer {
  static constexpr std::string_view kName = "timer";
  WorldTimer timer = WorldTimer::kWindow;
  std::uint32_t subject = 0;
  std::chrono::milliseconds duration{0};
  static void fields(auto& archive, auto& a) {
    archive("timer", a.timer);
    archive("subject", a.subject);
    archive("duration", a.duration);
  }
  bool operator==(const StartWorldTimer&) const = default;
};
/// The launcher's exit code for a job that no rank has ended with a code of its own.
inline constexpr int kLauncherError = 125;

/// The job is over: members that still live are ended when the Leaves before have been sent and a
/// grace period has passed.
struct EndJob {
  static constexpr std::string_view kName = "end_job";
  int code = 0;
  std::string cause;
  static void fields(auto& archive, auto& a) {
    archive("code", a.code);
    archive("cause", a.cause);
  }
  bool operator==(const EndJob&) const = default;
};

using WorldAction = std::variant<Tell, Prepare, StartMember, EndMember, StartWorldTimer, LogRecord,
                                 EventRecord, EndJob>;
using WorldActions = std::vector<WorldAction>;

}  // namespace chainmail::membership
