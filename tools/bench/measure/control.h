// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How the ranks of the benchmark talk about what they measure: a group of the engine that is not
// measured itself.
//
// Collective: every rank makes every call. Not thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/engine/group.h"
#include "plugin/job/world.h"
#include "tools/bench/contestants/contestant.h"

namespace chainmail::bench {

class Control {
 public:
  explicit Control(World& world);

  const Ranks& ranks() const noexcept { return ranks_; }
  const ops::Topology& topology() const noexcept { return group_->topology(); }

  void barrier();
  /// Element by element over the ranks.
  void maximum(std::span<double> values);
  double sum(double value);
  std::int64_t sum(std::int64_t value);
  /// Rank 0's text, on all ranks.
  std::string share(const std::string& text);
  /// Every rank's text, in rank order; at most 63 bytes of each.
  std::vector<std::string> collect(const std::string& text);

 private:
  void all_reduce(ops::DataType type, ops::ReduceOp op, std::size_t count, void* data);

  std::shared_ptr<ops::Group> group_;
  Ranks ranks_;
};

/// The ranks in by-node order (first those with local rank 0, node by node, ...): what a hostfile
/// that lists hosts in turn gives. `[i]` is the rank at place i.
[[nodiscard]] std::vector<int> by_node_order(const ops::Topology& topology);

}  // namespace chainmail::bench
