// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a warp reads and writes a block of the 16-bit wire, and the float32 that it is made from.

#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/move.cuh"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops::cuda {

inline constexpr int kWireThreads = 256;
inline constexpr unsigned kWarp = 32;
inline constexpr int kLanes = 8;
static_assert(kWarp * kLanes == kWireBlock, "a lane of a warp has kLanes elements of a block");

/// How many elements of a lane lie side by side: as many as 16 bytes have on the wider side.
inline constexpr int kFloatRun = 4;
inline constexpr int kHalfRun = 8;

/// Where a block lies in a row of messages, in bytes, and how much of it there is.
struct Place {
  std::size_t halves;
  std::size_t shift;
  unsigned length;
};

/// Rows of messages of `part` elements, `stride` bytes apart.
struct RowLayout {
  std::size_t part;
  std::size_t stride;
  unsigned blocks;  // of a message

  __device__ __forceinline__ Place at(unsigned block, std::size_t count) const {
    const unsigned message = block / blocks;
    const unsigned in_message = block - message * blocks;
    const std::size_t begin = message * stride;
    const std::size_t left = count - static_cast<std::size_t>(block) * kWireBlock;
    return {begin + in_message * 2 * kWireBlock, begin + 2 * part + in_message,
            left < kWireBlock ? static_cast<unsigned>(left) : static_cast<unsigned>(kWireBlock)};
  }
};

/// A lane's float32 elements of a block, in runs of kFloatRun.
struct Floats {
  float values[kLanes];
};

/// A lane's halves of a block, in runs of kRun, as they lie in memory: two to a word. Whoever takes
/// them apart waits for them, so that nobody does before all loads are on their way.
template <class Half>
struct Halves {
  std::uint32_t words[kLanes / 2];

  __device__ __forceinline__ Half at(int i) const {
    return {static_cast<std::uint16_t>(words[i / 2] >> (i % 2 * 16))};
  }
};

template <int kRun>
__device__ __forceinline__ unsigned run_begin(int run) {
  return (static_cast<unsigned>(run) * kWarp + threadIdx.x % kWarp) * kRun;
}

/// Whether a warp's accesses of the whole block at `block` can be of 16 bytes on the wider side.
template <int kRun, class T>
__device__ __forceinline__ bool is_whole(const T* block, unsigned length) {
  return length == kWireBlock && Lanes<T, kRun>::is_aligned(block);
}

/// What is past the end of the block is 0.
template <int kRun>
__device__ __forceinline__ Floats load_floats(const float* block, unsigned length) {
  Floats result;
  const bool whole = is_whole<kRun>(block, length);
#pragma unroll
  for (int run = 0; run < kLanes / kRun; ++run) {
    const unsigned first = run_begin<kRun>(run);
    Lanes<float, kRun> lanes;
    if (whole) {
      lanes.load(block + first);
    } else {
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const unsigned at = first + static_cast<unsigned>(i);
        lanes.values[i] = at < length ? block[at] : 0.0F;
      }
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) result.values[run * kRun + i] = lanes.values[i];
  }
  return result;
}

template <int kRun>
__device__ __forceinline__ void store_floats(float* block, unsigned length, const Floats& floats) {
  const bool whole = is_whole<kRun>(block, length);
#pragma unroll
  for (int run = 0; run < kLanes / kRun; ++run) {
    const unsigned first = run_begin<kRun>(run);
    Lanes<float, kRun> lanes;
#pragma unroll
    for (int i = 0; i < kRun; ++i) lanes.values[i] = floats.values[run * kRun + i];
    if (whole) {
      lanes.store(block + first);
    } else {
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const unsigned at = first + static_cast<unsigned>(i);
        if (at < length) block[at] = lanes.values[i];
      }
    }
  }
}

/// The halves of a block that is_whole().
template <int kRun, class Half>
__device__ __forceinline__ Halves<Half> load_whole(const Half* block) {
  Halves<Half> result;
#pragma unroll
  for (int run = 0; run < kLanes / kRun; ++run) {
    using Words = Lanes<std::uint32_t, kRun / 2>;
    Words words;
    words.load(reinterpret_cast<const std::uint32_t*>(block + run_begin<kRun>(run)));
#pragma unroll
    for (int i = 0; i < kRun / 2; ++i) result.words[run * kRun / 2 + i] = words.values[i];
  }
  return result;
}

/// What is past the end of the block is 0.
template <int kRun, class Half>
__device__ __forceinline__ Halves<Half> load_halves(const Half* block, unsigned length) {
  if (is_whole<kRun>(block, length)) return load_whole<kRun>(block);
  Halves<Half> result;
#pragma unroll
  for (int i = 0; i < kLanes; i += 2) {
    const unsigned at = run_begin<kRun>(i / kRun) + static_cast<unsigned>(i % kRun);
    const std::uint32_t low = at < length ? block[at].bits : 0U;
    const std::uint32_t high = at + 1 < length ? block[at + 1].bits : 0U;
    result.words[i / 2] = high << 16U | low;
  }
  return result;
}

template <int kRun, class Half>
__device__ __forceinline__ void store_halves(Half* block, unsigned length,
                                             const Halves<Half>& halves) {
  if (is_whole<kRun>(block, length)) {
#pragma unroll
    for (int run = 0; run < kLanes / kRun; ++run) {
      Lanes<std::uint32_t, kRun / 2> words;
#pragma unroll
      for (int i = 0; i < kRun / 2; ++i) words.values[i] = halves.words[run * kRun / 2 + i];
      words.store(reinterpret_cast<std::uint32_t*>(block + run_begin<kRun>(run)));
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kLanes; ++i) {
    const unsigned at = run_begin<kRun>(i / kRun) + static_cast<unsigned>(i % kRun);
    if (at < length) block[at] = halves.at(i);
  }
}

/// Two elements rounded into a word, NaNs to the one of element::round().
__device__ __forceinline__ std::uint32_t round_pair(float low, float high, Float16Bits /*type*/) {
  const __half2 pair = __floats2half2_rn(low, high);
  return element::cast_bits<std::uint32_t>(pair);
}
__device__ __forceinline__ std::uint32_t round_pair(float low, float high, BFloat16Bits /*type*/) {
#if __CUDA_ARCH__ >= 800
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return element::cast_bits<std::uint32_t>(pair);
#else
  BFloat16Bits halves[2];
  element::round(low, halves[0]);
  element::round(high, halves[1]);
  return static_cast<std::uint32_t>(halves[1].bits) << 16U | halves[0].bits;
#endif
}

}  // namespace chainmail::ops::cuda
