// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The part of sum_along_tree() that is done as reduce() is. Private to ops/kernels/cpu.

#pragma once

#include <cstddef>
#include <span>

#include "ops/shard_tree.h"
#include "ops/types.h"

namespace chainmail::ops {

/// One result, nothing rounded but to `type`; false, and nothing done, where that is not how it can
/// be done: other types than float32 and float64, or a very deep tree.
[[nodiscard]] bool sum_along_tree_in_registers(std::span<std::byte* const> destinations,
                                               std::span<const std::byte* const> sources,
                                               const TreeSum& plan, std::size_t count,
                                               DataType type);

}  // namespace chainmail::ops
