// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The words of membership: who is a member, of which world, at which step.
//
// Values; any thread.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace chainmail::membership {

/// A process that the launcher has started for the job. Never used again, also across --resume; a
/// rank is a place in World::members.
using MemberId = std::uint32_t;
/// A host of the job, in the order in which the launcher first read of it. Never used again.
using HostId = std::uint32_t;
/// Counts worlds from 1; 0 is before the first.
using Generation = std::uint32_t;
/// Counts committed steps: a member at step 7 has committed seven; 0 is the program's beginning.
using StepNumber = std::uint64_t;
/// A part of the global batch; which rank computes it changes nothing.
using ShardNumber = std::uint32_t;

/// One generation's member set. Immutable once it is announced.
struct World {
  Generation generation = 0;
  std::vector<MemberId> members;  ///< in rank order: rank 0 is the oldest
  std::vector<ShardNumber> cut;   ///< rank r computes the shards [cut[r], cut[r + 1])
  std::vector<MemberId> base;     ///< those of `members` that no edit of the hosts file removes
  std::vector<HostId> hosts;      ///< of each rank

  /// The rank of `member`, or nothing.
  [[nodiscard]] std::optional<std::uint32_t> rank_of(MemberId member) const {
    for (std::uint32_t rank = 0; rank < members.size(); ++rank) {
      if (members[rank] == member) return rank;
    }
    return std::nullopt;
  }

  static void fields(auto& archive, auto& world) {
    archive("generation", world.generation);
    archive("members", world.members);
    archive("cut", world.cut);
    archive("base", world.base);
    archive("hosts", world.hosts);
  }
  bool operator==(const World&) const = default;
};

using WorldPtr = std::shared_ptr<const World>;

/// Where a world begins.
struct Start {
  StepNumber step = 0;           ///< every member has committed it before the world's first step
  std::vector<MemberId> donors;  ///< who has the state of `step`; none: it is read from the newest
                                 ///< checkpoint, of `step` or later, or made anew for step 0

  static void fields(auto& archive, auto& start) {
    archive("step", start.step);
    archive("donors", start.donors);
  }
  bool operator==(const Start&) const = default;
};

}  // namespace chainmail::membership
