// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/node_cut.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace chainmail::ops {

void NodeCut::check(std::size_t count, const Topology& topology) const {
  const auto wanted = static_cast<std::size_t>(topology.min_local_size()) + 1;
  if (bounds.size() != wanted) {
    throw InvalidArgument("a cut with " + std::to_string(bounds.size()) + " bounds over " +
                          topology.describe() + "; its smallest node needs " +
                          std::to_string(wanted));
  }
  if (bounds.front() != 0 || bounds.back() != count ||
      !std::is_sorted(bounds.begin(), bounds.end())) {
    std::string text;
    for (const std::size_t bound : bounds) text += " " + std::to_string(bound);
    throw InvalidArgument("a cut of " + std::to_string(count) +
                          " elements must ascend from 0 to all of them, not" + text);
  }
  if (common_from > count) {
    throw InvalidArgument("common elements from " + std::to_string(common_from) + " on of " +
                          std::to_string(count));
  }
}

}  // namespace chainmail::ops
