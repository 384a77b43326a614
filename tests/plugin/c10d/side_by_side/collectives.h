// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Every collective of c10d as one call that gives the tensors it wrote, and what they should be.

#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <string>
#include <vector>

#include "tests/plugin/c10d/side_by_side/cases.h"

namespace chainmail::side_by_side {

struct Collective {
  std::string name;
  bool reduces = false;
  /// Runs the case over `group` and gives this rank's results; throws what the group throws.
  std::function<std::vector<at::Tensor>(c10d::Backend& group, const Case& what)> run;
  /// The right results of this rank, worked out alone.
  std::function<std::vector<at::Tensor>(const Case& what)> expect;
  /// Sparse tensors know no layouts, and single elements cannot be cut in two.
  std::function<bool(const Case& what)> applies = [](const Case&) { return true; };
};

const std::vector<Collective>& collectives();

}  // namespace chainmail::side_by_side
