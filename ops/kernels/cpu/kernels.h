// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The arithmetic of the CPU engine: reduce, scale, divide, and rounding to and from the wire's
// 16-bit formats. Vector code for the best instruction set of the machine, chosen at run time.
//
// Thread-safe (pure functions). Elements need no alignment; counts may exceed 2^31. The same inputs
// give the same bits on every rank: elements never interact, sums go in the order of the sources.
//
// Arithmetic: integers wrap; bool is 0 or 1 (sum and max are "or", product and min are "and");
// float16 and bfloat16 are computed in float32 and rounded to nearest even, once per call; min and
// max give NaN when either side is NaN. kAvg acts as kSum.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "ops/shard_tree.h"
#include "ops/types.h"

namespace chainmail::ops {

/// destination[i] = scale * (sources[0][i] op sources[1][i] op ...), combined in that order, for
/// every destination. Destinations may be sources. `scale` applies to floating-point types only.
/// One source or more. Throws InvalidArgument for a bitwise op on a floating-point type, or no
/// source.
void reduce(std::span<std::byte* const> destinations, std::span<const std::byte* const> sources,
            std::size_t count, DataType type, ReduceOp op, double scale = 1.0);

inline void reduce(std::byte* destination, std::span<const std::byte* const> sources,
                   std::size_t count, DataType type, ReduceOp op, double scale = 1.0) {
  reduce(std::span<std::byte* const>(&destination, 1), sources, count, type, op, scale);
}

/// The sums that `plan` makes of `sources`, one for each of plan.results: the k-th goes to every
/// one of destinations[k]. Destinations may be sources. Every addition is rounded to `type`, as if
/// its operands and its result lay in memory; on a 16-bit `wire` (kFloat32 only) its result is what
/// arrives when it is sent: round_to_wire() by blocks counted from element 0. What was rounded so
/// loses nothing when it is rounded again. Throws InvalidArgument where the numbers of sources or
/// destinations are not those of the plan.
void sum_along_tree(std::span<const std::span<std::byte* const>> destinations,
                    std::span<const std::byte* const> sources, const TreeSum& plan,
                    std::size_t count, DataType type, WireFormat wire = WireFormat::kNative);

/// float32 elements as they are once they have been sent: a leaf of such a tree.
void round_as_sent(std::byte* data, std::size_t count, WireFormat wire);

/// As memcpy(); faster where the bytes come from another core's cache or from memory.
void copy_memory(std::byte* to, const std::byte* from, std::size_t bytes);

/// destination[i] = destination[i] op source[i]
void accumulate(std::byte* destination, const std::byte* source, std::size_t count, DataType type,
                ReduceOp op);

/// data[i] *= scale for floating-point types (float64 in float64, others in float32); throws
/// InvalidArgument for others.
void scale_in_place(std::byte* data, std::size_t count, DataType type, double scale);

/// data[i] /= divisor, rounding toward zero, for integers (an average of integers); nothing to do
/// for bool. Throws InvalidArgument for floating-point types and divisor < 1.
void divide_in_place(std::byte* data, std::size_t count, DataType type, std::int64_t divisor);

// The wire: float32 elements as messages of 16-bit halves, see ops/kernels/wire_block.h. `wire` is
// kFloat16 or kBFloat16; kNative throws InvalidArgument.

/// message = source[i] * scale, the product in float32, then rounded once to nearest even. True
/// when a product is infinite or NaN; those are infinite or NaN in the message, too.
[[nodiscard]] bool round_to_wire(std::byte* message, const std::byte* source, std::size_t count,
                                 double scale, WireFormat wire);

/// destination[i] = messages[0][i] + messages[1][i] + ..., in float32 and that order. One message
/// or more. A finite half never becomes infinite by widening it; with `is_mean`, nor does the sum
/// of finite ones: a mean is no larger than the largest element, but for rounding.
void sum_from_wire(std::byte* destination, std::span<const std::byte* const> messages,
                   std::size_t count, WireFormat wire, bool is_mean = false);

/// destination[i] = message[i]
inline void widen_from_wire(std::byte* destination, const std::byte* message, std::size_t count,
                            WireFormat wire) {
  sum_from_wire(destination, {&message, 1}, count, wire);
}

/// The instruction set that the vector code runs with here, such as "AVX3" (AVX-512).
[[nodiscard]] const char* instruction_set() noexcept;

}  // namespace chainmail::ops
