// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The 16-bit wire of ops/kernels/wire_block.h: a warp has a block, a lane eight elements of it.

#include <cfloat>

#include "ops/kernels/cuda/launch.h"
#include "ops/kernels/cuda/move.cuh"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops::cuda {
namespace {

constexpr unsigned kWarp = 32;
static_assert(kWarp * kLanes == kWireBlock, "a lane of a warp has kLanes elements of a block");

/// A block of a row of messages, and how much of it there is.
struct Place {
  std::uint8_t* halves;
  std::uint8_t* shift;
  unsigned length;
};

/// Messages of `part` elements, `stride` bytes apart.
struct Row {
  std::uint8_t* messages;
  std::size_t part;
  std::size_t stride;

  __device__ __forceinline__ Place at(std::size_t block, std::size_t count) const {
    const std::size_t begin = block * kWireBlock;
    const std::size_t in_part = begin % part;
    std::uint8_t* const message = messages + begin / part * stride;
    const std::size_t left = count - begin;
    return {message + 2 * in_part, message + 2 * part + in_part / kWireBlock,
            left < kWireBlock ? static_cast<unsigned>(left) : static_cast<unsigned>(kWireBlock)};
  }
};

/// This lane's elements of a block of `length`; what is past its end is 0.
template <class T>
__device__ __forceinline__ Lanes<T> load_lanes(const T* block, unsigned length) {
  const unsigned first = threadIdx.x % kWarp * kLanes;
  if (first + kLanes <= length && is_aligned(block + first)) return load(block + first);
  Lanes<T> lanes;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    lanes.values[i] = first + static_cast<unsigned>(i) < length ? block[first + i] : T{};
  }
  return lanes;
}

template <class T>
__device__ __forceinline__ void store_lanes(T* block, unsigned length, const Lanes<T>& lanes) {
  const unsigned first = threadIdx.x % kWarp * kLanes;
  if (first + kLanes <= length && is_aligned(block + first)) return store(block + first, lanes);
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    if (first + static_cast<unsigned>(i) < length) block[first + i] = lanes.values[i];
  }
}

__device__ __forceinline__ float power_of_two(int exponent) {
  return element::cast_bits<float>(power_of_two_bits(exponent));
}

/// Rounds the block that the warp holds. All lanes have read what was there before one writes.
template <class Half>
__device__ __forceinline__ void round_block(const Place& to, const Lanes<float>& values,
                                            const WireScale& choice) {
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const std::uint32_t bits = element::cast_bits<std::uint32_t>(values.values[i]) & 0x7fffffffU;
    if (bits < 0x7f800000U && bits > largest) largest = bits;
  }
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffU, largest, distance);
    if (other > largest) largest = other;
  }
  const int shift = choice.shift_for(largest);
  const float factor = power_of_two(shift);
  Lanes<Half> halves;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) element::round(values.values[i] * factor, halves.values[i]);
  store_lanes(reinterpret_cast<Half*>(to.halves), to.length, halves);
  if (threadIdx.x % kWarp == 0) *to.shift = static_cast<std::uint8_t>(shift);
}

/// A finite half stays finite.
template <class Half>
__device__ __forceinline__ float widen_half(Half half, float factor) {
  const float value = element::widen(half) * factor;
  const bool left = !element::is_finite(value) && element::is_finite(half);
  return left ? copysignf(FLT_MAX, value) : value;
}

// Calls body(block) for every block of `count` elements that is this warp's.
template <class Body>
__device__ __forceinline__ void each_block(std::size_t count, const Body& body) {
  const std::size_t blocks = (count + kWireBlock - 1) / kWireBlock;
  const std::size_t warps = static_cast<std::size_t>(gridDim.x) * (kThreads / kWarp);
  for (std::size_t b =
           static_cast<std::size_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
       b < blocks; b += warps) {
    body(b);
  }
}

template <class Half>
__global__ void __launch_bounds__(kThreads)
    round_kernel(Row to, const float* source, std::size_t count, float scale, WireScale choice) {
  each_block(count, [&](std::size_t block) {
    const Place place = to.at(block, count);
    Lanes<float> values = load_lanes(source + block * kWireBlock, place.length);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) values.values[i] *= scale;
    round_block<Half>(place, values, choice);
  });
}

// Message r begins at r * messages.stride, but message `own` is `own_message`.
template <class Half>
__global__ void __launch_bounds__(kThreads)
    add_kernel(Row result, Row messages, int message_count, int own, Row own_message,
               std::size_t count, WireScale choice, bool is_mean) {
  each_block(count, [&](std::size_t block) {
    Lanes<float> sums;
    for (int r = 0; r < message_count; ++r) {
      Row row = r == own ? own_message : messages;
      if (r != own) row.messages += static_cast<std::size_t>(r) * messages.stride;
      const Place from = row.at(block, count);
      const Lanes<Half> halves =
          load_lanes(reinterpret_cast<const Half*>(from.halves), from.length);
      const float factor = power_of_two(-static_cast<std::int8_t>(*from.shift));
#pragma unroll
      for (int i = 0; i < kLanes; ++i) {
        const float term = widen_half(halves.values[i], factor);
        const float before = r == 0 ? 0.0F : sums.values[i];
        float sum = r == 0 ? term : __fadd_rn(before, term);
        const bool left =
            !element::is_finite(sum) && element::is_finite(before) && element::is_finite(term);
        if (is_mean && left) sum = copysignf(FLT_MAX, sum);
        sums.values[i] = sum;
      }
    }
    round_block<Half>(result.at(block, count), sums, choice);
  });
}

template <class Half>
__global__ void __launch_bounds__(kThreads)
    widen_kernel(float* target, Row messages, std::size_t count, std::uint32_t* flag) {
  bool has_nonfinite = false;
  each_block(count, [&](std::size_t block) {
    const Place from = messages.at(block, count);
    const Lanes<Half> halves = load_lanes(reinterpret_cast<const Half*>(from.halves), from.length);
    const float factor = power_of_two(-static_cast<std::int8_t>(*from.shift));
    Lanes<float> values;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      element::round(widen_half(halves.values[i], factor), values.values[i]);
      has_nonfinite |= !element::is_finite(values.values[i]);
    }
    store_lanes(target + block * kWireBlock, from.length, values);
  });
  raise(flag, has_nonfinite);
}

Row row_of(const void* messages, std::size_t part) {
  return {static_cast<std::uint8_t*>(const_cast<void*>(messages)), part, wire_stride(part)};
}

unsigned grid_for(std::size_t count) {
  constexpr std::size_t kMostBlocks = 1 << 16;
  constexpr std::size_t kPerBlock = kThreads / kWarp * kWireBlock;
  const std::size_t blocks = (count + kPerBlock - 1) / kPerBlock;
  return static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks);
}

// Calls body with a Half of the format.
template <class Body>
cudaError_t with_half(WireFormat wire, const Body& body) {
  switch (wire) {
    case WireFormat::kFloat16:
      body(Float16Bits{});
      return cudaGetLastError();
    case WireFormat::kBFloat16:
      body(BFloat16Bits{});
      return cudaGetLastError();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_round_parts(void* messages, std::size_t part, const void* source,
                               std::size_t count, double scale, WireFormat wire,
                               cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return with_half(wire, [&](auto half) {
    round_kernel<decltype(half)><<<grid_for(count), kThreads, 0, stream>>>(
        row_of(messages, part), static_cast<const float*>(source), count, static_cast<float>(scale),
        wire_scale(wire));
  });
}

cudaError_t launch_add_parts(void* result, const void* messages, std::size_t part,
                             int message_count, int own, const void* own_message, std::size_t count,
                             WireFormat wire, bool is_mean, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return with_half(wire, [&](auto half) {
    add_kernel<decltype(half)><<<grid_for(count), kThreads, 0, stream>>>(
        row_of(result, part), row_of(messages, part), message_count, own, row_of(own_message, part),
        count, wire_scale(wire), is_mean);
  });
}

cudaError_t launch_widen_parts(void* target, const void* messages, std::size_t part,
                               std::size_t count, WireFormat wire, std::uint32_t* flag,
                               cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return with_half(wire, [&](auto half) {
    widen_kernel<decltype(half)><<<grid_for(count), kThreads, 0, stream>>>(
        static_cast<float*>(target), row_of(messages, part), count, flag);
  });
}

}  // namespace chainmail::ops::cuda
