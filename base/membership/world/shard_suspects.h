// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which shards may be what members die of: where a sample is to blame, all who died in a step had
// its shard, however the shards were divided.
//
// Pure; one thread. Part of WorldMachine, which decides nothing by it.

#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "base/membership/types.h"

namespace chainmail::membership {

class ShardSuspects {
 public:
  /// One more round of deaths begins here, or goes on: a member of `world` has died in a step.
  void add(const World& world, MemberId died) {
    const auto rank = world.rank_of(died);
    if (!rank) return;
    for (ShardNumber shard = world.cut[*rank]; shard < world.cut[*rank + 1]; ++shard) {
      const auto place = std::lower_bound(of_round_.begin(), of_round_.end(), shard);
      if (place == of_round_.end() || *place != shard) of_round_.insert(place, shard);
    }
  }

  /// The round is over; `is_first`: of another step than the one before; `is_total`: nobody has
  /// lived on, so that no shard is more to blame than another.
  void end_round(bool is_first, bool is_total) {
    std::vector<ShardNumber> round = std::exchange(of_round_, {});
    if (is_total) round.clear();
    if (is_first) {
      of_all_ = round;
      return;
    }
    std::vector<ShardNumber> both;
    std::set_intersection(of_all_.begin(), of_all_.end(), round.begin(), round.end(),
                          std::back_inserter(both));
    of_all_ = std::move(both);
  }

  /// "; each that died had shards 4 to 5"; empty where there are none, or all `shards`.
  [[nodiscard]] std::string text(std::uint32_t shards) const {
    if (of_all_.empty() || of_all_.size() == shards) return "";
    const ShardNumber first = of_all_.front();
    const ShardNumber last = of_all_.back();
    std::string what = "shard " + std::to_string(first);
    if (first != last) {
      const bool is_range = last - first + 1 == of_all_.size();
      what = (is_range ? "shards " : "some of shards ") + std::to_string(first) + " to " +
             std::to_string(last);
    }
    return "; each that died had " + what;
  }

 private:
  std::vector<ShardNumber> of_round_;  ///< ascending, as the next
  std::vector<ShardNumber> of_all_;    ///< rounds of the same step
};

}  // namespace chainmail::membership
