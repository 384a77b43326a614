// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is written down about changes: the lines of host_worker_log and the events of events.jsonl.
//
// Plain structs; any thread. The machines give all but the time.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/membership/types.h"

namespace chainmail::membership {

enum class Change { kAdded, kRemoved, kLost, kRefused };

/// One line `SEQ ADDED|REMOVED|LOST|REFUSED ADDRESS NANOSECONDS GENERATION STEP SIZE CAUSE`. The
/// sequence has no gaps for the life of the file; ADDED less REMOVED and LOST are the members.
struct LogRecord {
  static constexpr std::string_view kName = "log";
  std::uint64_t sequence = 0;
  Change change = Change::kAdded;
  std::string address;
  Generation generation = 0;  ///< in which it becomes true
  StepNumber step = 0;        ///< newest that the launcher knows of as committed
  std::uint32_t size = 0;     ///< members after this line
  std::string cause;
  static void fields(auto& archive, auto& r) {
    archive("sequence", r.sequence);
    archive("change", r.change);
    archive("address", r.address);
    archive("generation", r.generation);
    archive("step", r.step);
    archive("size", r.size);
    archive("cause", r.cause);
  }
  bool operator==(const LogRecord&) const = default;
};

/// What a line of the log says, time and all; the last column may contain spaces.
[[nodiscard]] std::string line_of(const LogRecord& record, std::uint64_t nanoseconds);

/// An event of events.jsonl; the names are those of docs/launcher.md.
enum class EventKind {
  kMemberPending,  ///< a newcomer is ready and waits for a boundary
  kPrepareStarted,
  kPrepareFailed,
  kPrepareDone,
  kWorldChanged,
  kMemberDraining,
  kMemberLeft,
  kMemberRefused,
  kLastWill,
};
[[nodiscard]] std::string_view to_string(EventKind kind) noexcept;

/// Of the members only those that the kind has.
struct EventRecord {
  static constexpr std::string_view kName = "event";
  EventKind kind = EventKind::kWorldChanged;
  std::string address;  ///< of the host; empty for kWorldChanged and kLastWill
  std::optional<MemberId> member;
  Generation generation = 0;
  StepNumber step = 0;
  std::string cause;
  // Of kWorldChanged, sent when the world's first step is committed:
  std::uint32_t size = 0;
  std::vector<ShardNumber> cut;
  std::vector<MemberId> donors;
  std::uint64_t pause_ms = 0;
  std::uint64_t bytes = 0;   ///< of state that newcomers fetched
  std::uint32_t redone = 0;  ///< 1 if the step under way was begun anew
  static void fields(auto& archive, auto& r) {
    archive("event", r.kind);
    archive("address", r.address);
    archive("member", r.member);
    archive("generation", r.generation);
    archive("step", r.step);
    archive("cause", r.cause);
    archive("size", r.size);
    archive("cut", r.cut);
    archive("donors", r.donors);
    archive("pause_ms", r.pause_ms);
    archive("bytes", r.bytes);
    archive("redone", r.redone);
  }
  bool operator==(const EventRecord&) const = default;
};

}  // namespace chainmail::membership
