// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a user has found to be fastest between the nodes of a cluster, in place of the built-in rule
// of `auto`. A text of lines "from_bytes algorithm", as in
//
//   # bytes   algorithm
//   0         hierarchical
//   65536     two_dimensional
//
// Pure; must be equal on all ranks, which find out otherwise by a MismatchError.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "ops/types.h"

namespace chainmail::ops {

/// From `from_bytes` on, up to the next row, `algorithm`.
struct TuningRow {
  std::size_t from_bytes = 0;
  Algorithm algorithm = Algorithm::kFlat;
  bool operator==(const TuningRow&) const = default;
};

/// Ascending, the first from 0. Empty: the built-in rule.
using Tuning = std::vector<TuningRow>;

/// Throws InvalidArgument that names `name` and the line.
[[nodiscard]] Tuning parse_tuning(std::string_view text, const std::string& name);

}  // namespace chainmail::ops
