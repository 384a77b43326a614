// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a rank makes of its own shards' gradients: shard by shard, in ascending order, two values
// that are the halves of one node of the tree become one, so that log2 of the shards are kept at
// most, and the rank's pieces remain.
//
// One thread at a time. No communication here.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "ops/shard_tree.h"
#include "ops/types.h"

namespace chainmail::internal {

class ShardStack {
 public:
  /// For step after step of `rank`'s shards, in `flat`, a dense CPU tensor of a floating-point type
  /// that outlives this. `wire`: as what every value is rounded.
  ShardStack(std::shared_ptr<const ops::ShardCut> cut, int rank, at::Tensor flat,
             ops::WireFormat wire);

  /// The next shard's gradients are in `flat`; they count `weight`. Afterwards flat is free for the
  /// following shard, or holds the last piece.
  void add(double weight);
  /// True once all of this rank's shards are there.
  [[nodiscard]] bool is_full() const noexcept { return next_ == merges_.size(); }
  /// When is_full(): this rank's pieces in ascending order. The last one is `flat`.
  [[nodiscard]] std::vector<std::byte*> pieces() const;
  /// What the pieces but the last one lie in.
  [[nodiscard]] std::shared_ptr<const void> memory() const noexcept { return kept_; }
  /// Drops what is there; the next shard is the first one of a step.
  void clear() noexcept;

 private:
  std::byte* flat_data() const { return static_cast<std::byte*>(flat_.data_ptr()); }
  /// Where the value with so many below it is kept.
  std::byte* place(std::size_t depth);

  at::Tensor flat_;
  std::size_t count_;
  ops::DataType dtype_;
  ops::WireFormat wire_;
  std::vector<std::uint8_t> merges_;  ///< of each shard: how many values it is added to
  std::size_t next_ = 0;
  std::size_t depth_ = 0;  ///< values below `flat`
  std::shared_ptr<std::vector<at::Tensor>> kept_ =
      std::make_shared<std::vector<at::Tensor>>();  ///< by depth
};

}  // namespace chainmail::internal
