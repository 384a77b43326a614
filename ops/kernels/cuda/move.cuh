// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a block of threads moves a run of elements from one type to another: as many at a time as
// take 16 bytes on the wider side, where both sides can be aligned to that, else one by one.
//
// Memory is what limits these kernels, so that the 32 accesses of a warp lie side by side: threads
// that wrote 32 bytes each, in two halves, took twice as long to unpack (H200). A thread has all
// its loads on their way before it stores the first; a block has 8192 elements, as a PackBlock. 512
// threads were 3 to 9 % faster than 256, and streaming stores no faster (H200).

#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/kernels/element.h"

namespace chainmail::ops::cuda {

inline constexpr int kThreads = 512;
inline constexpr unsigned kBlockElements = 8192;

/// What a thread reads or writes with one access.
template <int kBytes>
struct Access;
template <>
struct Access<4> {
  using Type = unsigned;
};
template <>
struct Access<8> {
  using Type = uint2;
};
template <>
struct Access<16> {
  using Type = uint4;
};

/// Elements that a thread moves with one access: 4, 8 or 16 bytes.
template <class T, int kLanes>
struct alignas(sizeof(T) * kLanes) Lanes {
  using Word = typename Access<sizeof(T) * kLanes>::Type;
  T values[kLanes];

  /// From and to an address that is_aligned().
  __device__ __forceinline__ void load(const T* from) {
    *reinterpret_cast<Word*>(values) = *reinterpret_cast<const Word*>(from);
  }
  __device__ __forceinline__ void store(T* to) const {
    *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(values);
  }
  __device__ __forceinline__ static bool is_aligned(const T* at) {
    return reinterpret_cast<std::uintptr_t>(at) % sizeof(Word) == 0;
  }
  /// Elements from `at` up to the first that is_aligned(); a type's own alignment is given.
  __device__ __forceinline__ static unsigned to_alignment(const T* at) {
    const auto past = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(at) % sizeof(Word));
    return past == 0 ? 0 : static_cast<unsigned>((sizeof(Word) - past) / sizeof(T));
  }
};

/// to[i] = from[i] * scale for i below `count` (at most kBlockElements), by all threads of the
/// block. True in the threads that met an infinity or a NaN. `to` may be `from`.
template <class To, class From>
__device__ __forceinline__ bool move(To* to, const From* from, unsigned count,
                                     typename element::Wide<From>::Type scale) {
  constexpr int kLanes = 16 / (sizeof(To) > sizeof(From) ? sizeof(To) : sizeof(From));
  constexpr int kInFlight = kBlockElements / (kThreads * kLanes);
  using In = Lanes<From, kLanes>;
  using Out = Lanes<To, kLanes>;
  bool is_finite = true;
  // Where the side that is written begins to be aligned, the other may be, too.
  unsigned head = Out::to_alignment(to);
  if (head > count) head = count;
  const bool has_vectors = Out::is_aligned(to + head) && In::is_aligned(from + head);
  const unsigned vectors = has_vectors ? (count - head) / kLanes : 0;
  if (!has_vectors) head = 0;
  const unsigned tail = head + vectors * kLanes;

  In in[kInFlight];
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) {
    const unsigned v = threadIdx.x + static_cast<unsigned>(i) * kThreads;
    if (v < vectors) in[i].load(from + head + v * kLanes);
  }
#pragma unroll
  for (int i = 0; i < kInFlight; ++i) {
    const unsigned v = threadIdx.x + static_cast<unsigned>(i) * kThreads;
    if (v >= vectors) break;
    Out out;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) {
      out.values[lane] = element::scaled<To>(in[i].values[lane], scale);
      is_finite &= element::is_finite(out.values[lane]);
    }
    out.store(to + head + v * kLanes);
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
