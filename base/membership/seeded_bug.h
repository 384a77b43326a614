// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Twelve mistakes that a protocol of this kind can have, to show that the simulator would find
// them.
//
// The product is compiled without CHAINMAIL_SEEDED_BUGS: has_bug() is then the constant false and
// no code of a mistake is left. Only tests/base/membership compiles the machines a second time with
// it, as a library of its own, and chooses one of the mistakes at run time; one thread.

#pragma once

#include <array>
#include <string_view>

namespace chainmail::membership {

enum class SeededBug {
  kNone,
  kNoFence,                 ///< a completed exchange of the old world still commits
  kResumeAtMinimum,         ///< the world begins at the oldest state instead of the newest
  kDonorIsRankZero,         ///< rank 0 gives its state, whichever it is
  kStopOnHearing,           ///< a member stops when it hears of a change, not at the agreed lane
  kLeaveEarly,              ///< a member that is to leave ends after its commit
  kOldSegmentReused,        ///< a new world shares memory with the one before
  kPositionMovedEarly,      ///< the position in the data moves when a step begins
  kLaneForgotten,           ///< the lane is missing in the bucket plan of odd numbers of ranks
  kNewcomerCountedEarly,    ///< a newcomer says that it has the state before it is fetched
  kStateWithoutGeneration,  ///< an answer of any generation counts for this one
  kDeadReplyCounted,        ///< the answer of a member that has died since still counts
  kBaseCheckSkipped,        ///< an edit of the hosts file drains base members
};

inline constexpr std::array<std::string_view, 13> kSeededBugNames{
    "none",
    "no fence",
    "resume at minimum",
    "donor is rank 0",
    "stop on hearing",
    "leave early",
    "old segment reused",
    "position moved before commit",
    "lane forgotten in one bucket plan",
    "newcomer counted before fetched",
    "generation not in STATE",
    "reply of a dead member counted",
    "base check skipped",
};

#ifdef CHAINMAIL_SEEDED_BUGS
extern SeededBug seeded_bug;
inline bool has_bug(SeededBug bug) noexcept { return seeded_bug == bug; }
#else
constexpr bool has_bug(SeededBug) noexcept { return false; }
#endif

}  // namespace chainmail::membership
