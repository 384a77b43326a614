// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Packing many tensors into one buffer: the table that both the CPU and the GPU walk, and the CPU's
// walk, which is what the GPU's is compared with bit for bit.
//
// Thread-safe (pure functions).

#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "ops/kernels/pack_block.h"
#include "ops/types.h"

namespace chainmail::ops {

/// A contiguous tensor of floating-point elements and its place in the buffer.
struct PackedTensor {
  void* data = nullptr;
  DataType type = DataType::kFloat32;
  std::size_t count = 0;   ///< elements
  std::size_t offset = 0;  ///< in elements of the buffer
};

/// The blocks of all tensors, in their order. Throws InvalidArgument for a type that is not
/// floating point, or a null tensor with elements.
[[nodiscard]] std::vector<PackBlock> plan_pack(std::span<const PackedTensor> tensors);

/// buffer[offset + i] = tensor[i] * scale, the product in float32 (float64 when the tensor is),
/// rounded once to nearest even. True when a result is infinite or NaN. A NaN is written as the
/// type's one NaN that GPUs make: all bits but the sign.
[[nodiscard]] bool pack(std::span<const PackBlock> blocks, void* buffer, DataType buffer_type,
                        double scale);

/// tensor[i] = buffer[offset + i] * scale, the product in float32 (float64 when the buffer is).
[[nodiscard]] bool unpack(std::span<const PackBlock> blocks, const void* buffer,
                          DataType buffer_type, double scale);

/// target[i] = source[i] * scale, as above, for one array; target may be source.
[[nodiscard]] bool convert(void* target, DataType target_type, const void* source,
                           DataType source_type, std::size_t count, double scale);

/// DeviceKernels' functions of the same names on the host, by the CPU's own kernels.
void round_parts(void* messages, std::size_t part, const void* source, std::size_t count,
                 double scale, WireFormat wire);
void add_parts(void* result, const void* messages, std::size_t part, int message_count, int own,
               const void* own_message, std::size_t count, WireFormat wire, bool is_mean);
[[nodiscard]] bool widen_parts(void* target, const void* messages, std::size_t part,
                               std::size_t count, WireFormat wire);

}  // namespace chainmail::ops
