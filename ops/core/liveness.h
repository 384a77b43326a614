// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether a rank that has not joined its group yet can still join. Connected ranks see each other
// end; before that only somebody outside can tell: the launcher, which reaps its ranks, or the
// kernel of the rank's host.
//
// A Rendezvous that knows is a RankLiveness, too. The end of a rank is not a failure by itself: it
// may have done all that its peers need. It matters to those who wait for a key that it never set.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "ops/core/rendezvous.h"

namespace chainmail::ops {

/// How the process of a rank ended.
struct RankEnd {
  int rank = -1;      ///< the job's number
  std::string host;   ///< may be empty
  std::string cause;  ///< "exited with code 0"
};

class RankLiveness {
 public:
  virtual ~RankLiveness() = default;
  /// Nothing while `rank`, by the numbers of whatever this belongs to, may still come. Returns soon
  /// and is cheap to ask ten times a second. Throws what keeps a live rank from meeting this one.
  /// Thread-safe.
  virtual std::optional<RankEnd> end_of(int rank) = 0;
};

/// A rendezvous that also knows which ranks have ended.
class LivenessRendezvous final : public PrefixRendezvous, public RankLiveness {
 public:
  using EndOf = std::function<std::optional<RankEnd>(int rank)>;

  LivenessRendezvous(std::shared_ptr<Rendezvous> inner, EndOf end_of)
      : PrefixRendezvous("", std::move(inner)), end_of_(std::move(end_of)) {}
  void leave() noexcept override { inner().leave(); }
  std::optional<RankEnd> end_of(int rank) override { return end_of_(rank); }

 private:
  const EndOf end_of_;
};

/// What `members` of a group, numbered from 0 in that order, are to `rendezvous`, the group's.
[[nodiscard]] std::shared_ptr<Rendezvous> rendezvous_of(const std::vector<int>& members,
                                                        std::shared_ptr<Rendezvous> rendezvous);

/// The ranks that somebody waits for. Not thread-safe.
class MissingRanks {
 public:
  /// `rendezvous`, which may know of ends or not, lives longer; null when there is none.
  explicit MissingRanks(Rendezvous* rendezvous)
      : rendezvous_(rendezvous), liveness_(dynamic_cast<RankLiveness*>(rendezvous)) {}

  /// Asked again and again while `rank` is missing, each time after a look, by
  /// Rendezvous::try_get(key), for the sign that it would give. Says that it has ended only when it
  /// said so before and every look since has had an answer: a sign that was given in time would
  /// have been seen.
  [[nodiscard]] std::optional<RankEnd> end_of(int rank);

 private:
  struct Absence {
    internal::Deadline next_look;
    std::optional<std::uint64_t>
        unanswered_then{};  ///< looks, when it was first known to have ended
  };
  Rendezvous* const rendezvous_;
  RankLiveness* const liveness_;
  std::map<int, Absence> absences_;
};

/// "rank 1 on host n2 exited with code 0 before it joined its group".
[[nodiscard]] PeerError ended_before(const RankEnd& end, const std::string& what);

/// What `rank`, by the rendezvous's numbers, sets under `key`. Throws TimeoutError that names it,
/// and PeerError when it, or one of the ranks after it below `end`, has ended without setting the
/// key that `key_of` says.
[[nodiscard]] std::string get_from(Rendezvous& rendezvous, int rank, int end,
                                   const std::function<std::string(int rank)>& key_of,
                                   internal::Deadline deadline, const std::string& what);

}  // namespace chainmail::ops
