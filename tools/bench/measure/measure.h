// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Times an operation on several contestants in turn and checks their results.
//
// Collective: all ranks run the same cases. Times of an operation are the maximum over the ranks,
// since the slowest one holds up a training step.

#pragma once

#include <memory>
#include <vector>

#include "tools/bench/contestants/contestant.h"
#include "tools/bench/measure/control.h"
#include "tools/bench/measure/timing.h"

namespace chainmail::bench {

/// Round by round A, B, C, A, B, C; the first is ours. In the order of `contestants`.
[[nodiscard]] std::vector<Result> measure(
    const Case& what, const std::vector<std::unique_ptr<Contestant>>& contestants,
    Control& control);

}  // namespace chainmail::bench
