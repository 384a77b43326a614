// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a warp reads and writes a block of the 16-bit wire, and the float32 that it is made from.

#pragma once

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

/// A lane's elements of a block, in runs of kRun.
template <class T>
struct Values {
  T values[kLanes];
};

template <int kRun>
__device__ __forceinline__ unsigned run_begin(int run) {
  return (static_cast<unsigned>(run) * kWarp + threadIdx.x % kWarp) * kRun;
}

/// What is past the end of the block is 0.
template <int kRun, class T>
__device__ __forceinline__ Values<T> load_values(const T* block, unsigned length) {
  Values<T> result;
#pragma unroll
  for (int run = 0; run < kLanes / kRun; ++run) {
    const unsigned first = run_begin<kRun>(run);
    Lanes<T, kRun> lanes;
    if (first + kRun <= length && lanes.is_aligned(block + first)) {
      lanes.load(block + first);
    } else {
#pragma unroll
      for (int i = 0; i < kRun; ++i) {
        const unsigned at = first + static_cast<unsigned>(i);
        lanes.values[i] = at < length ? block[at] : T{};
      }
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) result.values[run * kRun + i] = lanes.values[i];
  }
  return result;
}

template <int kRun, class T>
__device__ __forceinline__ void store_values(T* block, unsigned length, const Values<T>& values) {
#pragma unroll
  for (int run = 0; run < kLanes / kRun; ++run) {
    const unsigned first = run_begin<kRun>(run);
    Lanes<T, kRun> lanes;
#pragma unroll
    for (int i = 0; i < kRun; ++i) lanes.values[i] = values.values[run * kRun + i];
    if (first + kRun <= length && lanes.is_aligned(block + first)) {
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

}  // namespace chainmail::ops::cuda
