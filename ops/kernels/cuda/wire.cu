// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The 16-bit wire of ops/kernels/wire_block.h: a warp has a block, a lane eight elements of it.

#include <cfloat>

#include "ops/kernels/cuda/launch.h"
#include "ops/kernels/cuda/wire_values.cuh"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops::cuda {
// Named, since nvcc calls what is in an unnamed one by the path of the file: two builds would
// differ.
inline namespace wire_kernels {

__device__ __forceinline__ float power_of_two(int exponent) {
  return element::cast_bits<float>(power_of_two_bits(exponent));
}

__device__ __forceinline__ std::uint32_t magnitude(float value) {
  return element::cast_bits<std::uint32_t>(value) & 0x7fffffffU;
}

__device__ __forceinline__ std::uint32_t largest_of_warp(std::uint32_t largest) {
#if __CUDA_ARCH__ >= 800
  return __reduce_max_sync(0xffffffffU, largest);
#else
#pragma unroll
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) {
    const std::uint32_t other = __shfl_xor_sync(0xffffffffU, largest, distance);
    if (other > largest) largest = other;
  }
  return largest;
#endif
}

/// The bits of the largest finite magnitude that the warp holds.
__device__ __forceinline__ std::uint32_t largest_finite(const Floats& floats) {
  constexpr std::uint32_t kInfinity = 0x7f800000U;
  float most = 0.0F;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) most = fmaxf(most, fabsf(floats.values[i]));  // but for NaNs
  std::uint32_t largest = largest_of_warp(element::cast_bits<std::uint32_t>(most));
  if (largest < kInfinity) return largest;  // for the whole warp
  largest = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const std::uint32_t bits = magnitude(floats.values[i]);
    if (bits < kInfinity) largest = max(largest, bits);
  }
  return largest_of_warp(largest);
}

/// Rounds the block that the warp holds. All lanes have read what was there before one writes.
template <int kRun, class Half>
__device__ __forceinline__ void round_block(std::uint8_t* messages, const Place& to,
                                            const Floats& floats, const WireScale& choice) {
  const int shift = choice.shift_for(largest_finite(floats));
  const float factor = power_of_two(shift);
  Halves<Half> halves;
#pragma unroll
  for (int i = 0; i < kLanes; i += 2) {
    halves.words[i / 2] =
        round_pair(floats.values[i] * factor, floats.values[i + 1] * factor, Half{});
  }
  store_halves<kRun>(reinterpret_cast<Half*>(messages + to.halves), to.length, halves);
  if (threadIdx.x % kWarp == 0) messages[to.shift] = static_cast<std::uint8_t>(shift);
}

__device__ __forceinline__ int shift_of(const std::uint8_t* messages, const Place& place) {
  return static_cast<std::int8_t>(messages[place.shift]);
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
  const std::size_t warps = static_cast<std::size_t>(gridDim.x) * (kWireThreads / kWarp);
  for (std::size_t b =
           static_cast<std::size_t>(blockIdx.x) * (kWireThreads / kWarp) + threadIdx.x / kWarp;
       b < blocks; b += warps) {
    body(static_cast<unsigned>(b));  // 2^32 blocks are 1 Ti elements
  }
}

template <class Half>
__global__ void __launch_bounds__(kWireThreads)
    round_kernel(std::uint8_t* messages, RowLayout row, const float* source, std::size_t count,
                 float scale, WireScale choice) {
  each_block(count, [&](unsigned block) {
    const Place place = row.at(block, count);
    Floats floats =
        load_floats<kFloatRun>(source + static_cast<std::size_t>(block) * kWireBlock, place.length);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) floats.values[i] *= scale;
    round_block<kFloatRun, Half>(messages, place, floats, choice);
  });
}

/// Messages of several ranks: that of rank r begins at r * stride, but for rank `own` at
/// `own_message`.
struct Messages {
  const std::uint8_t* all;
  std::size_t stride;  // a multiple of 16
  int count;
  int own;
  const std::uint8_t* own_message;

  __device__ __forceinline__ const std::uint8_t* of(int rank) const {
    return rank == own ? own_message : all + static_cast<std::size_t>(rank) * stride;
  }
  __device__ __forceinline__ bool are_aligned() const {
    return ((reinterpret_cast<std::uintptr_t>(all) |
             reinterpret_cast<std::uintptr_t>(own_message)) %
            16) == 0;
  }
};

/// sum + half * factor, a product that is rounded before it is added; for float16 one that rounds
/// no bits away, where both at once are the same.
__device__ __forceinline__ float add_scaled(Float16Bits half, float factor, float sum) {
  return __fmaf_rn(element::widen(half), factor, sum);
}
__device__ __forceinline__ float add_scaled(BFloat16Bits half, float factor, float sum) {
  return __fadd_rn(sum, __fmul_rn(element::widen(half), factor));
}

/// The shifts with which no sum can be infinite and, in float16, no half times its factor is
/// rounded.
struct SafeShifts {
  int least;
  int most;
};

/// The sums of a whole block. False, and they are of no use, where a shift is not safe.
template <class Half>
__device__ __forceinline__ bool add_whole(Floats& sums, const Messages& messages,
                                          const Place& place, const SafeShifts& safe) {
  constexpr int kTogether = 4;  // loads on their way
#pragma unroll
  for (int i = 0; i < kLanes; ++i) sums.values[i] = -0.0F;  // what adding to changes nothing
  for (int first = 0; first < messages.count; first += kTogether) {
    Halves<Half> halves[kTogether];
    int shifts[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i >= messages.count) continue;
      const std::uint8_t* const message = messages.of(first + i);
      halves[i] = load_whole<kHalfRun>(reinterpret_cast<const Half*>(message + place.halves));
      shifts[i] = shift_of(message, place);
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if (first + i >= messages.count) break;
      if (shifts[i] < safe.least || shifts[i] > safe.most) return false;  // the whole warp
      const float factor = power_of_two(-shifts[i]);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        sums.values[lane] = add_scaled(halves[i].at(lane), factor, sums.values[lane]);
      }
    }
  }
  return true;
}

/// The sums of any block: a finite half stays finite, and so does the sum of finite terms where it
/// will be a mean.
template <class Half>
__device__ __forceinline__ void add_any(Floats& sums, const Messages& messages, const Place& place,
                                        bool is_mean) {
#pragma unroll
  for (int i = 0; i < kLanes; ++i) sums.values[i] = -0.0F;
  for (int rank = 0; rank < messages.count; ++rank) {
    const std::uint8_t* const message = messages.of(rank);
    const auto halves =
        load_halves<kHalfRun>(reinterpret_cast<const Half*>(message + place.halves), place.length);
    const float factor = power_of_two(-shift_of(message, place));
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float term = widen_half(halves.at(i), factor);
      const float before = sums.values[i];
      float sum = __fadd_rn(before, term);
      const bool left =
          !element::is_finite(sum) && element::is_finite(before) && element::is_finite(term);
      if (is_mean && left) sum = copysignf(FLT_MAX, sum);
      sums.values[i] = sum;
    }
  }
}

template <class Half>
__global__ void __launch_bounds__(kWireThreads)
    add_kernel(std::uint8_t* result, Messages messages, RowLayout row, std::size_t count,
               WireScale choice, SafeShifts safe, bool is_mean) {
  const bool are_aligned = messages.are_aligned();
  each_block(count, [&](unsigned block) {
    const Place place = row.at(block, count);
    Floats sums;
    const bool whole = are_aligned && place.length == kWireBlock;
    if (!whole || !add_whole<Half>(sums, messages, place, safe)) {
      add_any<Half>(sums, messages, place, is_mean);
    }
    round_block<kHalfRun, Half>(result, place, sums, choice);
  });
}

template <class Half>
__global__ void __launch_bounds__(kWireThreads)
    widen_kernel(float* target, const std::uint8_t* messages, RowLayout row, std::size_t count,
                 std::uint32_t* flag) {
  bool has_nonfinite = false;
  each_block(count, [&](unsigned block) {
    const Place place = row.at(block, count);
    const auto halves = load_halves<kFloatRun>(
        reinterpret_cast<const Half*>(messages + place.halves), place.length);
    const float factor = power_of_two(-shift_of(messages, place));
    Floats floats;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      element::round(widen_half(halves.at(i), factor), floats.values[i]);
      has_nonfinite |= !element::is_finite(floats.values[i]);
    }
    store_floats<kFloatRun>(target + static_cast<std::size_t>(block) * kWireBlock, place.length,
                            floats);
  });
  raise(flag, has_nonfinite);
}

RowLayout layout_of(std::size_t part) {
  return {part, wire_stride(part), static_cast<unsigned>((part + kWireBlock - 1) / kWireBlock)};
}

std::uint8_t* bytes_of(void* messages) { return static_cast<std::uint8_t*>(messages); }
const std::uint8_t* bytes_of(const void* messages) {
  return static_cast<const std::uint8_t*>(messages);
}

/// For blocks of `terms` messages.
SafeShifts safe_shifts(WireFormat wire, int terms) {
  const WireScale& choice = wire_scale(wire);
  // The least half of float16, 2^-24, times 2^-125 is the least float32.
  const int most = wire == WireFormat::kFloat16 ? WireScale::kMost - 1 : WireScale::kMost;
  SafeShifts safe{-WireScale::kMost, most};
  while (choice.may_overflow(safe.least, static_cast<std::size_t>(terms))) ++safe.least;
  return safe;
}

unsigned grid_for(std::size_t count) {
  constexpr std::size_t kMostBlocks = 1 << 16;
  constexpr std::size_t kPerBlock = kWireThreads / kWarp * kWireBlock;
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

}  // namespace wire_kernels

cudaError_t launch_round_parts(void* messages, std::size_t part, const void* source,
                               std::size_t count, double scale, WireFormat wire,
                               cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return with_half(wire, [&](auto half) {
    round_kernel<decltype(half)><<<grid_for(count), kWireThreads, 0, stream>>>(
        bytes_of(messages), layout_of(part), static_cast<const float*>(source), count,
        static_cast<float>(scale), wire_scale(wire));
  });
}

cudaError_t launch_add_parts(void* result, const void* messages, std::size_t part,
                             int message_count, int own, const void* own_message, std::size_t count,
                             WireFormat wire, bool is_mean, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const RowLayout row = layout_of(part);
  const WireScale& choice = wire_scale(wire);
  return with_half(wire, [&](auto half) {
    add_kernel<decltype(half)><<<grid_for(count), kWireThreads, 0, stream>>>(
        bytes_of(result),
        {bytes_of(messages), row.stride, message_count, own, bytes_of(own_message)}, row, count,
        choice, safe_shifts(wire, message_count), is_mean);
  });
}

cudaError_t launch_widen_parts(void* target, const void* messages, std::size_t part,
                               std::size_t count, WireFormat wire, std::uint32_t* flag,
                               cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  return with_half(wire, [&](auto half) {
    widen_kernel<decltype(half)><<<grid_for(count), kWireThreads, 0, stream>>>(
        static_cast<float*>(target), bytes_of(messages), layout_of(part), count, flag);
  });
}

}  // namespace chainmail::ops::cuda
