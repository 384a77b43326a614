// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which rank computes which shards.
//
// Pure functions; any thread.

#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/membership/types.h"

namespace chainmail::membership {

/// Contiguous ranges for weights.size() ranks: `size + 1` bounds, from 0 to `shards`. `weights` are
/// the costs of one shard on each rank, in any unit; the largest cost of a rank is minimal, and
/// among equal ones the earlier ranks have more. With shards >= ranks no rank is without a shard.
/// Deterministic, so that all who know the weights compute the same cut.
[[nodiscard]] std::vector<ShardNumber> make_cut(std::uint32_t shards,
                                                std::span<const std::uint32_t> weights);

}  // namespace chainmail::membership
