// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Runs every case over our group and over Gloo's and says how they compare.
//
// Collective: every rank runs the same cases in the same order; every rank ends with the same
// verdicts.

#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <functional>
#include <string>
#include <vector>

#include "tests/plugin/c10d/side_by_side/collectives.h"

namespace chainmail::side_by_side {

enum class Verdict : char {
  kSame = '=',             ///< both right
  kGlooRefuses = 'r',      ///< ours right, Gloo throws
  kGlooWrong = 'w',        ///< ours right, Gloo's values are not
  kBothRefuse = 'x',       ///< nothing is right, and both say so
  kOnlyOursRefuses = 'o',  ///< nothing is right; Gloo gives values all the same
  kBad = '!',              ///< ours wrong, or refused what has a right result
  kNone = ' ',             ///< no such case
};

/// One row of the table: a collective, a reduction and a shape; one verdict per element type.
struct Row {
  std::string collective;
  std::string reduction;
  std::string shape;
  std::vector<Verdict> verdicts;
};

struct Backends {
  c10::intrusive_ptr<c10d::Backend> ours;
  c10::intrusive_ptr<c10d::Backend> gloo;
  int rank = 0;
  int size = 1;
};

enum class Extent {
  kQuick,  ///< sync or async in turn; all shapes under sum, two under the other reductions
  kFull,
};

/// `complain` hears, on the rank that saw it, of what is bad; `report` of every row.
void compare(const Backends& backends, Extent extent,
             const std::function<void(const std::string&)>& complain,
             const std::function<void(const Row&)>& report);

std::string describe(const Row& row);

}  // namespace chainmail::side_by_side
