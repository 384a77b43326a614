// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where the parameters of a unit lie one behind the other, and which rank has which slice of them.
//
// Slices lie in memory in an order of their own, those of the same local rank of all nodes side by
// side: the sum of a node's gradients then leaves each of its ranks with one stretch, which holds
// the slices of its peers on the other nodes.
//
// Pure functions, in elements.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ops/node_cut.h"
#include "ops/topology.h"
#include "plugin/train/sharding/slice_cut.h"

namespace chainmail::internal {

/// The parameters and the slices of a unit.
struct FlatLayout {
  std::vector<ParameterPlace> places;
  std::vector<std::size_t> bounds;  ///< of the slices, in the order in which they lie
  /// Which of these slices each rank has.
  std::vector<std::size_t> position_of_rank;

  [[nodiscard]] std::size_t begin_of(int rank) const;
  [[nodiscard]] std::size_t length_of(int rank) const;
  /// What a rank has of the parameters, in ascending order and none of them empty.
  [[nodiscard]] std::vector<SlicePart> parts_of(int rank) const;
};

/// For parameters of so many elements each, the same on all ranks.
[[nodiscard]] FlatLayout lay_out(std::span<const std::size_t> counts,
                                 const ops::Topology& topology);

/// A stretch of one parameter in a buffer of gradients.
struct GradientPiece {
  SlicePart part;
  std::size_t offset = 0;
};

/// The gradients of some parameters, without gaps for the others.
struct GradientLayout {
  std::vector<char> is_present;       ///< of which parameters
  std::vector<GradientPiece> pieces;  ///< of all ranks, as they lie
  std::vector<GradientPiece> own;     ///< of these, this rank's
  std::size_t count = 0;
  /// For the sum over the ranks; null where nodes of different sizes need all of it everywhere.
  std::shared_ptr<const ops::NodeCut> cut;
};

/// Of the parameters that `is_present` says, for this rank.
[[nodiscard]] GradientLayout gradients_of(const FlatLayout& layout,
                                          const std::vector<char>& is_present, int rank,
                                          const ops::Topology& topology);

/// The most elements that gradients_of() can need.
[[nodiscard]] std::size_t most_elements(const FlatLayout& layout);

}  // namespace chainmail::internal
