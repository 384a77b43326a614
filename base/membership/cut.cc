// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/membership/cut.h"

#include <algorithm>

namespace chainmail::membership {
namespace {

// How many shards rank by rank, if none may cost more than `limit`; the sum tells whether it is
// enough. A rank takes at least `least` shards, and leaves as many for each of those behind it.
std::vector<ShardNumber> fill(std::uint32_t shards, std::span<const std::uint32_t> weights,
                              std::uint64_t limit, std::uint32_t least) {
  std::vector<ShardNumber> cut{0};
  for (std::size_t rank = 0; rank < weights.size(); ++rank) {
    const auto behind = static_cast<std::uint32_t>(weights.size() - rank - 1) * least;
    const std::uint32_t left = shards - cut.back() - behind;
    const auto fitting = static_cast<std::uint32_t>(
        std::min<std::uint64_t>(left, limit / std::max(weights[rank], 1U)));
    cut.push_back(cut.back() + std::max(fitting, std::min(least, left)));
  }
  return cut;
}

std::uint64_t cost_of(const std::vector<ShardNumber>& cut, std::span<const std::uint32_t> weights) {
  std::uint64_t most = 0;
  for (std::size_t rank = 0; rank < weights.size(); ++rank) {
    most = std::max(most, std::uint64_t{std::max(weights[rank], 1U)} * (cut[rank + 1] - cut[rank]));
  }
  return most;
}

}  // namespace

std::vector<ShardNumber> make_cut(std::uint32_t shards, std::span<const std::uint32_t> weights) {
  const std::uint32_t least = shards >= weights.size() ? 1 : 0;
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  for (const std::uint32_t weight : weights) {
    high = std::max(high, std::uint64_t{std::max(weight, 1U)} * shards);
  }
  while (low < high) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto cut = fill(shards, weights, middle, least);
    if (cut.back() == shards && cost_of(cut, weights) <= middle) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return fill(shards, weights, high, least);
}

}  // namespace chainmail::membership
