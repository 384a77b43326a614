// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The 16-bit wire of ops/kernels/wire_block.h: a warp has a block, a lane eight elements of it.

#include <cfloat>

#include "ops/kernels/cuda/launch.h"
#include "ops/kernels/cuda/wire_values.cuh"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops::cuda {
namespace {

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
__device__ __forceinline__ std::uint32_t largest_finite(const Values<float>& values) {
  constexpr std::uint32_t kInfinity = 0x7f800000U;
  std::uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) largest = max(largest, magnitude(values.values[i]));
  largest = largest_of_warp(largest);
  if (largest < kInfinity) return largest;  // for the whole warp
  largest = 0;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const std::uint32_t bits = magnitude(values.values[i]);
    if (bits < kInfinity) largest = max(largest, bits);
  }
  return largest_of_warp(largest);
}

/// Rounds the block that the warp holds. All lanes have read what was there before one writes.
template <int kRun, class Half>
__device__ __forceinline__ void round_block(std::uint8_t* messages, const Place& to,
                                            const Values<float>& values, const WireScale& choice) {
  const int shift = choice.shift_for(largest_finite(values));
  const float factor = power_of_two(shift);
  Values<Half> halves;
#pragma unroll
  for (int i = 0; i < kLanes; ++i) element::round(values.values[i] * factor, halves.values[i]);
  store_values<kRun>(reinterpret_cast<Half*>(messages + to.halves), to.length, halves);
  if (threadIdx.x % kWarp == 0) messages[to.shift] = static_cast<std::uint8_t>(shift);
}

/// A block of a message as it was received.
template <int kRun, class Half>
struct Received {
  Values<Half> halves;
  int shift;

  __device__ __forceinline__ void load(const std::uint8_t* messages, const Place& from) {
    halves = load_values<kRun>(reinterpret_cast<const Half*>(messages + from.halves), from.length);
    shift = static_cast<std::int8_t>(messages[from.shift]);
  }
};

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
    Values<float> values =
        load_values<kFloatRun>(source + static_cast<std::size_t>(block) * kWireBlock, place.length);
#pragma unroll
    for (int i = 0; i < kLanes; ++i) values.values[i] *= scale;
    round_block<kFloatRun, Half>(messages, place, values, choice);
  });
}

/// Adds a message to the sums, which are those of the messages before it.
template <int kRun, class Half>
__device__ __forceinline__ void add_message(Values<float>& sums,
                                            const Received<kRun, Half>& message, bool is_first,
                                            bool is_safe, bool is_mean) {
  const float factor = power_of_two(-message.shift);
  if (is_safe) {  // the same for the whole warp
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      const float term = __fmul_rn(element::widen(message.halves.values[i]), factor);
      sums.values[i] = is_first ? term : __fadd_rn(sums.values[i], term);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const float term = widen_half(message.halves.values[i], factor);
    const float before = is_first ? 0.0F : sums.values[i];
    float sum = is_first ? term : __fadd_rn(before, term);
    const bool left =
        !element::is_finite(sum) && element::is_finite(before) && element::is_finite(term);
    if (is_mean && left) sum = copysignf(FLT_MAX, sum);
    sums.values[i] = sum;
  }
}

/// Messages of several ranks: that of rank r begins at r * stride, but for rank `own` at
/// `own_message`.
struct Messages {
  const std::uint8_t* all;
  std::size_t stride;
  int count;
  int own;
  const std::uint8_t* own_message;

  __device__ __forceinline__ const std::uint8_t* of(int rank) const {
    return rank == own ? own_message : all + static_cast<std::size_t>(rank) * stride;
  }
};

// Where all shifts of a block are `safe_shift` or more, no sum of finite halves can be infinite.
template <class Half>
__global__ void __launch_bounds__(kWireThreads)
    add_kernel(std::uint8_t* result, Messages messages, RowLayout row, std::size_t count,
               WireScale choice, int safe_shift, bool is_mean) {
  constexpr int kTogether = 2;  // loads on their way; four need so many registers that it is slower
  each_block(count, [&](unsigned block) {
    const Place place = row.at(block, count);
    Values<float> sums;
    bool is_safe = true;
    for (int first = 0; first < messages.count; first += kTogether) {
      Received<kHalfRun, Half> received[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i < messages.count) received[i].load(messages.of(first + i), place);
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        if (first + i >= messages.count) break;
        is_safe &= received[i].shift >= safe_shift;
        add_message(sums, received[i], first + i == 0, is_safe, is_mean);
      }
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
    Received<kFloatRun, Half> received;
    received.load(messages, place);
    const float factor = power_of_two(-received.shift);
    Values<float> values;
#pragma unroll
    for (int i = 0; i < kLanes; ++i) {
      element::round(widen_half(received.halves.values[i], factor), values.values[i]);
      has_nonfinite |= !element::is_finite(values.values[i]);
    }
    store_values<kFloatRun>(target + static_cast<std::size_t>(block) * kWireBlock, place.length,
                            values);
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

/// The least shift with which `terms` finite halves cannot add up to an infinity.
int safe_shift_for(const WireScale& choice, int terms) {
  int shift = -WireScale::kMost;
  while (choice.may_overflow(shift, static_cast<std::size_t>(terms))) ++shift;
  return shift;
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

}  // namespace

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
        choice, safe_shift_for(choice, message_count), is_mean);
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
