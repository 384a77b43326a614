// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/select.h"

#include <algorithm>
#include <iterator>

namespace chainmail::ops {
namespace {

// From here on moving the data costs more than a message; TCP takes 0.1 to 0.2 ns per byte of the
// core that does it, so that 64 KiB are about one message's latency.
constexpr std::size_t kManyCoresBytes = std::size_t{64} << 10;

}  // namespace

Choice select_all_reduce(std::size_t bytes, const Topology& topology,
                         const Tuning& tuning) noexcept {
  if (topology.node_count() == 1) {
    return {Algorithm::kSingleNode, "all ranks are on one node"};
  }
  if (topology.size() == topology.node_count()) {
    return {Algorithm::kFlat, "every node has one rank"};
  }
  if (!tuning.empty() && tuning.front().from_bytes <= bytes) {
    const auto after = std::find_if(tuning.begin(), tuning.end(), [bytes](const TuningRow& row) {
      return row.from_bytes > bytes;
    });
    return {std::prev(after)->algorithm, "CHAINMAIL_TUNING says so"};
  }
  if (topology.min_local_size() == 1) {
    return {Algorithm::kHierarchical,
            "a node has one rank only, so that there is nothing to share the wire with"};
  }
  if (bytes < kManyCoresBytes) {
    return {Algorithm::kHierarchical,
            "the message is small and the fewest steps between nodes win"};
  }
  return {Algorithm::kTwoDimensional,
          "the message is large and every local rank can move its share"};
}

}  // namespace chainmail::ops
