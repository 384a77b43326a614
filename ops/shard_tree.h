// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The tree along which the contributions of V shards are added, whoever computes which of them.
//
// A floating-point sum depends on its brackets. Here they depend on V alone: a node of the tree is
// a range of shards; its value is that of its left half plus that of its right half, where the left
// half is the largest power of two below the range's length (as in a heap). A rank with a range of
// shards adds what lies inside, and hands over the values of the largest nodes in it, its pieces;
// others add those of neighbouring ranks in the same way, up to the root. So any number of ranks,
// on any nodes, with any cut, gets the same bits. After ReproRed (Stelz et al., 2024), which does
// so for scalars.
//
// Values; any thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace chainmail::ops {

/// The shards begin, begin + 1, ... end - 1.
struct ShardRange {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  [[nodiscard]] std::uint32_t length() const noexcept { return end - begin; }
  bool operator==(const ShardRange&) const = default;
};

class ShardTree {
 public:
  static constexpr std::uint32_t kMostShards = 65536;

  /// Throws InvalidArgument unless 1 <= shards <= kMostShards.
  explicit ShardTree(std::uint32_t shards);

  [[nodiscard]] std::uint32_t shards() const noexcept { return shards_; }
  /// The largest nodes within `range`, in ascending order: at most 2 log2(V) of them, one where the
  /// range is a node, none where it is empty. Throws InvalidArgument for a range outside the tree.
  [[nodiscard]] std::vector<ShardRange> pieces(ShardRange range) const;
  /// Whether `left` and `right` are the halves of one node.
  [[nodiscard]] bool are_halves(ShardRange left, ShardRange right) const noexcept;

 private:
  std::uint32_t shards_;
};

/// Which rank has which shards: rank r those from bounds[r] to bounds[r + 1].
struct ShardCut {
  ShardTree tree{1};
  std::vector<std::uint32_t> bounds{0, 1};

  /// Throws InvalidArgument unless the bounds ascend from 0 to all shards, for `ranks` ranks.
  void check(int ranks) const;
  /// The nodes that a rank hands over.
  [[nodiscard]] std::vector<ShardRange> pieces_of(int rank) const {
    const auto index = static_cast<std::size_t>(rank);
    return tree.pieces({bounds.at(index), bounds.at(index + 1)});
  }
};

/// How the values of nodes are added: each is put on a stack in turn, and then the two topmost are
/// replaced by their sum `merges` times. What is left on the stack is the result.
struct TreeSum {
  std::vector<std::uint8_t> merges;  ///< by source
  std::vector<ShardRange> results;   ///< the largest nodes within the union, in ascending order
  std::size_t depth = 0;             ///< the most values that are on the stack at once
};

/// Of `sources`, nodes of `tree` in ascending order; there may be gaps between them. Throws
/// InvalidArgument where they overlap or descend.
[[nodiscard]] TreeSum plan_sum(const ShardTree& tree, std::span<const ShardRange> sources);

}  // namespace chainmail::ops
