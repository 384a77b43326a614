// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How ranks share the optimizer's work on a bucket: those of each node, or all of the job. Which
// slice belongs to whom is ops::NodeCut's. ZeRO stage 1 (Rajbhandari et al., SC 2020).
//
// Where a slice ends inside a parameter, it ends a whole number of units after the parameter's
// first element. Vector loops over the two parts then take the elements that they take in a loop
// over the whole, in vectors of the same elements and with the same remainder, and give the same
// bits; so do sums over blocks of a unit.
//
// Pure functions.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace chainmail::internal {

/// What the optimizers' slices are cut at: whole vectors, blocks of a 16-bit wire (256 elements),
/// and the blocks over which the squares of gradients are added for their norm.
inline constexpr std::size_t kSliceUnit = 4096;

/// Where a parameter's gradient lies in its bucket, in elements.
struct ParameterPlace {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// What a slice has of one parameter: its elements `begin` to `end`, as they lie in memory.
struct SlicePart {
  std::size_t parameter = 0;  ///< position in the bucket
  std::size_t begin = 0;
  std::size_t end = 0;
  bool operator==(const SlicePart&) const = default;
};

/// `slices` + 1 ascending bounds from 0 to `end`, which lies behind the last place: near equal
/// slices, each cut moved down to a multiple of `unit` within the parameter that it hits, or up to
/// the next parameter where it hits the gap between two. `places` ascend and do not overlap.
[[nodiscard]] std::vector<std::size_t> cut_into_slices(std::span<const ParameterPlace> places,
                                                       std::size_t end, std::size_t slices,
                                                       std::size_t unit);

/// For optimizers that must see whole parameters: which of `owners` has each, the largest first to
/// whoever has the fewest elements so far.
[[nodiscard]] std::vector<std::size_t> share_whole(std::span<const std::size_t> counts,
                                                   std::size_t owners);

/// The parts of the slice from `begin` to `end`, in ascending order and none of them empty.
[[nodiscard]] std::vector<SlicePart> parts_of_slice(std::span<const ParameterPlace> places,
                                                    std::size_t begin, std::size_t end);

}  // namespace chainmail::internal
