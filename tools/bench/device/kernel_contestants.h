// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Packing and unpacking on one device, and rounding, adding and widening messages of the 16-bit
// wire: our kernels beside a copy of as many bytes, which is what the memory can do, and beside
// torch's ways to the same result.
//
// No peer takes part; every rank measures its own device. Not thread-safe.

#pragma once

#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "ops/types.h"
#include "tools/bench/contestants/contestant.h"
#include "tools/bench/device/kernel_place.h"
#include "tools/bench/device/model_shapes.h"

namespace chainmail::bench {

/// What kernels are measured on.
struct KernelCase {
  std::string op;      ///< one of kernel_operations()
  std::string shapes;  ///< for parse_shapes()
  ops::WireFormat wire = ops::WireFormat::kFloat16;
};

/// "pack", "unpack", "round", "add", "widen".
[[nodiscard]] std::vector<std::string> kernel_operations();

/// Elements of all tensors together.
[[nodiscard]] std::size_t element_count(const KernelCase& what);
/// What the table's columns `size` and `busbw` count: bytes of the tensors (of the result, for
/// add), and how many bytes of memory move for each of them.
[[nodiscard]] std::size_t size_in_bytes(const KernelCase& what);
[[nodiscard]] double moved_per_byte(const KernelCase& what);

/// Ours first; they share their tensors on `device`. Throws InvalidArgument for an operation that
/// is unknown or a wire without compression.
[[nodiscard]] std::vector<std::unique_ptr<Contestant>> make_kernel_contestants(
    const KernelCase& what, c10::Device device, KernelPlace& place);

}  // namespace chainmail::bench
