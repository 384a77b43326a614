// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Finds out on a group which algorithm is fastest between its nodes.
//
// Collective: every rank calls it in the same place of its order of operations, and all get the
// same table, since every decision is made from times that have been reduced over all ranks.

#pragma once

#include <chrono>
#include <functional>

#include "ops/core/operation.h"
#include "ops/core/tuning.h"

namespace chainmail::ops {

/// `run` carries out one collective of the group and waits for it. Takes about `limit`, after what
/// it costs to connect the ranks: the sizes that do not fit are left to the algorithm of the
/// largest that did. Throws what `run` throws.
[[nodiscard]] Tuning measure_tuning(const std::function<void(const Collective&)>& run,
                                    std::chrono::microseconds limit = std::chrono::milliseconds{
                                        50});

}  // namespace chainmail::ops
