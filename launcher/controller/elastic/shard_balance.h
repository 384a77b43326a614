// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether the shards of an elastic job should lie otherwise, by what one takes on each rank. A step
// takes as long as its slowest rank; a change of the world costs a pause, and what is measured
// depends on what else a host does. So shards move only where the slowest rank would need clearly
// less, several times in a row, and after each move the next one is further away.
//
// Pure; one thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/membership/types.h"

namespace chainmail::launch {

class ShardBalance {
 public:
  /// What a shard takes on `member`, as the median of its last steps. Returns the times in
  /// microseconds by rank of `world` where shards should be divided anew by them, else nothing.
  [[nodiscard]] std::vector<std::uint32_t> on_time(const membership::World& world,
                                                   membership::MemberId member,
                                                   std::chrono::microseconds time);

 private:
  [[nodiscard]] bool is_unbalanced(const membership::World& world) const;

  membership::Generation generation_ = 0;
  std::vector<std::uint32_t> times_;  ///< by rank
  std::vector<bool> is_heard_;        ///< each rank, in this round
  std::uint32_t rounds_ = 0;          ///< in a row that were unbalanced
  std::uint32_t rest_ = 0;            ///< rounds that are not looked at
  std::uint32_t next_rest_ = kFirstRest;

  static constexpr std::uint32_t kFirstRest = 16;
};

}  // namespace chainmail::launch
