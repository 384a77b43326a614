// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a block of threads moves a run of elements from one type to another: 16 bytes at a time on
// both sides where both can be aligned, element by element where not.
//
// Memory is what limits these kernels. A thread has kInFlight loads of 8 elements on their way
// before it stores the first: with 256 threads, 8192 elements per block, which is what a PackBlock
// holds.

#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/kernels/element.h"

namespace chainmail::ops::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kLanes = 8;     // elements that a thread moves at once
inline constexpr int kInFlight = 4;  // of those, before the first store
inline constexpr unsigned kBlockElements = kThreads * kLanes * kInFlight;

/// kLanes elements: 16, 32 or 64 bytes, in 16-byte pieces.
template <class T>
struct alignas(16) Lanes {
  T values[kLanes];
};

template <class T>
__device__ __forceinline__ Lanes<T> load(const T* from) {
  Lanes<T> lanes;
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(lanes) / 16); ++i) {
    reinterpret_cast<uint4*>(&lanes)[i] = reinterpret_cast<const uint4*>(from)[i];
  }
  return lanes;
}

template <class T>
__device__ __forceinline__ void store(T* to, const Lanes<T>& lanes) {
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(lanes) / 16); ++i) {
    reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(&lanes)[i];
  }
}

/// Elements from `from` up to the first that lies on 16 bytes; a type's own alignment is given.
template <class T>
__device__ __forceinline__ unsigned elements_to_alignment(const T* from) {
  const auto past = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) % 16);
  return past == 0 ? 0 : static_cast<unsigned>((16 - past) / sizeof(T));
}

template <class T>
__device__ __forceinline__ bool is_aligned(const T* at) {
  return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
}

/// to[i] = from[i] * scale for i below `count` (at most kBlockElements), by all threads of the
/// block. True in the threads that met an infinity or a NaN. `to` may be `from`.
template <class To, class From>
__device__ __forceinline__ bool move(To* to, const From* from, unsigned count,
                                     typename element::Wide<From>::Type scale) {
  bool is_finite = true;
  // Where the side that is written begins to be aligned, the other may be, too.
  unsigned head = elements_to_alignment(to);
  if (head > count) head = count;
  const bool has_vectors = is_aligned(to + head) && is_aligned(from + head);
  const unsigned vectors = has_vectors ? (count - head) / kLanes : 0;
  if (!has_vectors) head = 0;
  const unsigned tail = head + vectors * kLanes;

  for (unsigned first = threadIdx.x; first < vectors; first += kThreads * kInFlight) {
    Lanes<From> in[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const unsigned v = first + static_cast<unsigned>(i) * kThreads;
      if (v < vectors) in[i] = load(from + head + v * kLanes);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const unsigned v = first + static_cast<unsigned>(i) * kThreads;
      if (v >= vectors) break;
      Lanes<To> out;
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        out.values[lane] = element::scaled<To>(in[i].values[lane], scale);
        is_finite &= element::is_finite(out.values[lane]);
      }
      store(to + head + v * kLanes, out);
    }
  }
  // What is before the first vector and after the last: all, where there is none.
  const unsigned rest = count - vectors * kLanes;
  for (unsigned r = threadIdx.x; r < rest; r += kThreads) {
    const unsigned i = r < head ? r : tail + (r - head);
    const To value = element::scaled<To>(from[i], scale);
    is_finite &= element::is_finite(value);
    to[i] = value;
  }
  return !is_finite;
}

/// All threads of the block come here. The flag may be in host memory: it is written at most once
/// per block, and only when there is something to tell.
__device__ __forceinline__ void raise(std::uint32_t* flag, bool has_nonfinite) {
  if (flag == nullptr) return;
  if (__syncthreads_or(has_nonfinite ? 1 : 0) != 0 && threadIdx.x == 0) {
    *static_cast<volatile std::uint32_t*>(flag) = 1;
  }
}

}  // namespace chainmail::ops::cuda
