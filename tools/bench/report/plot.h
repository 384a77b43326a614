// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A picture of a run: time and ratio over message size. Pure functions.

#pragma once

#include <string>
#include <vector>

#include "tools/bench/report/report.h"

namespace chainmail::bench {

/// An SVG file with two panels per operation, both axes logarithmic. `measured` in the order of the
/// run; lines of contestants that were not in it are left out.
[[nodiscard]] std::string plot_svg(const RunFacts& facts, const std::vector<Measured>& measured);

}  // namespace chainmail::bench
