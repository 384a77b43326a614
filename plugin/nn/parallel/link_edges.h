// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether the links of all ranks fit together.
//
// Pure functions.

#pragma once

#include <string>
#include <tuple>
#include <vector>

#include "plugin/train/communicator/fields.h"

namespace chainmail::internal {

/// Ranks that a link receives from and sends to, in order; none for an end of the model.
struct LinkEdges {
  std::vector<int> from;
  std::vector<int> to;

  static constexpr char kObjectName[] = "links";
  static auto fields(auto& self) { return std::tie(self.from, self.to); }
};

/// What does not fit, naming both ranks; empty when all does: from each rank to each other as many
/// sends as receives, and an order in which no rank waits for ever. `links` are of all ranks, and
/// name ranks of these only.
[[nodiscard]] std::string find_unmet_edge(const std::vector<std::vector<LinkEdges>>& links);

}  // namespace chainmail::internal
