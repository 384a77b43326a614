// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The ranks of a job with one program.

#pragma once

#include <vector>

#include "launcher/placement/placement.h"

namespace chainmail::launch {

inline Placement place_ranks(const std::vector<Host>& hosts, const PlacementOptions& options) {
  return place_applications({{hosts, options.ranks, options.per_node}}, options);
}

}  // namespace chainmail::launch
