// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The physical limits that all-reduces run into, measured in the same run.
//
// Collective: every rank calls.

#pragma once

#include "tools/bench/machine/machine.h"
#include "tools/bench/measure/control.h"

namespace chainmail::bench {

/// Fills in `machine`'s rates, on rank 0. Takes about a second.
void measure_rates(Control& control, Machine& machine);

}  // namespace chainmail::bench
