// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The ranks' elements to their sum, as a Reduction says.
//
// Pure functions.

#pragma once

#include <cstddef>
#include <span>

#include "ops/comm/comm.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops {

/// `sources` by rank of the Comm; every one of `destinations`, which may be sources, gets the
/// result.
inline void combine(std::span<std::byte* const> destinations,
                    std::span<const std::byte* const> sources, std::size_t count,
                    const Reduction& reduction) {
  if (reduction.tree != nullptr) {
    sum_along_tree({&destinations, 1}, sources, *reduction.tree, count, reduction.dtype,
                   reduction.rounding);
  } else {
    reduce(destinations, sources, count, reduction.dtype, reduction.op, reduction.scale);
  }
}

/// Of how many elements slices of a tensor are multiples, where `least` would do.
[[nodiscard]] inline std::size_t slice_unit(const Reduction& reduction, std::size_t least) {
  return reduction.tree != nullptr ? kWireBlock : least;
}

}  // namespace chainmail::ops
