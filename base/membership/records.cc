// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/membership/records.h"

#include <algorithm>
#include <array>

namespace chainmail::membership {

std::string line_of(const LogRecord& record, std::uint64_t nanoseconds) {
  static constexpr std::array<std::string_view, 4> kChanges{"ADDED", "REMOVED", "LOST", "REFUSED"};
  std::string line = std::to_string(record.sequence);
  line.append(" ").append(kChanges.at(static_cast<std::size_t>(record.change)));
  line.append(" ").append(record.address);
  for (const std::uint64_t number :
       {nanoseconds, std::uint64_t{record.generation}, record.step, std::uint64_t{record.size}}) {
    line.append(" ").append(std::to_string(number));
  }
  line.append(" ").append(record.cause);
  // A cause may quote what others wrote; a line stays one line.
  std::replace_if(
      line.begin(), line.end(), [](unsigned char c) { return c < 0x20; }, ' ');
  return line;
}

std::string_view to_string(EventKind kind) noexcept {
  switch (kind) {
    case EventKind::kMemberPending:
      return "member_pending";
    case EventKind::kPrepareStarted:
      return "prepare_started";
    case EventKind::kPrepareFailed:
      return "prepare_failed";
    case EventKind::kPrepareDone:
      return "prepare_done";
    case EventKind::kWorldChanged:
      return "world_changed";
    case EventKind::kMemberDraining:
      return "member_draining";
    case EventKind::kMemberLeft:
      return "member_left";
    case EventKind::kMemberRefused:
      return "member_refused";
    case EventKind::kLastWill:
      return "last_will";
  }
  return "";
}

}  // namespace chainmail::membership
