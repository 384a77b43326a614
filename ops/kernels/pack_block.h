// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One row of the table by which the CPU and the GPU pack; see pack.h. Also compiled by nvcc.
//
// A plain value.

#pragma once

#include <cstddef>
#include <cstdint>

namespace chainmail::ops {

/// At most kElements of one tensor: what one block of threads moves. Plain bytes, so that the table
/// can lie in device memory.
struct PackBlock {
  static constexpr std::size_t kElements = 8192;
  void* data = nullptr;
  std::uint64_t offset = 0;  ///< in elements of the buffer
  std::uint32_t count = 0;
  std::uint32_t type = 0;  ///< a DataType
};
static_assert(sizeof(PackBlock) == 24);

}  // namespace chainmail::ops
