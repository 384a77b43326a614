// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which ranks make no progress any more, and which of them the others wait for. Pure, not
// thread-safe.
//
// A rank that is stuck keeps all that reduce with it waiting, so all of them stand still; but those
// have begun an operation that it has not.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace chainmail::launch {

/// What a rank tells now and then.
struct Progress {
  std::uint64_t steps = 0;       ///< of the training layer
  std::uint64_t operations = 0;  ///< begun on all groups, in an elastic job since the last step
  std::uint32_t world = 0;       ///< generation in which an elastic job's rank has come there
  bool operator==(const Progress&) const = default;
};

struct Stall {
  /// The ranks that are behind all others; empty when those that stand still are equally far.
  std::vector<std::uint32_t> culprits;
  std::string text;  ///< "no step and no operation for 60 s; ..."
};

class StallDetector {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Filter = std::function<bool(std::uint32_t rank)>;

  /// Further ranks are known from when they are first named.
  explicit StallDetector(std::size_t ranks) : ranks_(ranks) {}

  void update(std::uint32_t rank, Progress progress, Time now);
  /// The rank has ended: it need not go on.
  void forget(std::uint32_t rank) { known(rank).seen.reset(); }
  /// The launcher was held up itself: what is known of the ranks is old, not their progress.
  void start_anew(Time now);
  /// Whether a rank that has made progress before has made none for `limit`; or twice as long where
  /// it may be waiting for one that still makes some.
  /// Of those ranks that `counts` is true for.
  [[nodiscard]] std::optional<Stall> find(Time now, std::chrono::milliseconds limit,
                                          const Filter& counts = {}) const;

 private:
  struct Rank {
    std::optional<Progress> seen;  ///< nothing before the first word: a start may take long
    Time since;
  };

  Rank& known(std::uint32_t rank);
  bool may_wait_for_others(std::uint32_t rank, Time now, std::chrono::milliseconds limit,
                           const Filter& counts) const;
  bool is_known(std::uint32_t rank, const Filter& counts) const;

  std::vector<Rank> ranks_;
};

}  // namespace chainmail::launch
