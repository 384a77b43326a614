// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <type_traits>

#include "ops/kernels/cuda/launch.h"
#include "ops/kernels/cuda/move.cuh"
#include "ops/kernels/with_type.h"

namespace chainmail::ops::cuda {
// Named, since nvcc calls what is in an unnamed one by the path of the file: two builds would
// differ.
inline namespace divide_kernels {

template <class Integer>
__global__ void __launch_bounds__(kThreads)
    divide_kernel(Integer* data, std::size_t count, std::int64_t divisor) {
  const std::size_t threads = static_cast<std::size_t>(gridDim.x) * kThreads;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += threads) {
    // Not in int64: that has no room for the upper half of uint64.
    using Wide = std::conditional_t<std::is_unsigned_v<Integer>, std::uint64_t, std::int64_t>;
    data[i] = static_cast<Integer>(static_cast<Wide>(data[i]) / static_cast<Wide>(divisor));
  }
}

template <class Integer>
cudaError_t divide(void* data, std::size_t count, std::int64_t divisor, cudaStream_t stream) {
  constexpr std::size_t kMostBlocks = 1 << 16;
  const std::size_t blocks = (count + kThreads - 1) / kThreads;
  divide_kernel<Integer>
      <<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0, stream>>>(
          static_cast<Integer*>(data), count, divisor);
  return cudaGetLastError();
}

}  // namespace divide_kernels

cudaError_t launch_divide(void* data, DataType type, std::size_t count, std::int64_t divisor,
                          cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  if (divisor < 1) return cudaErrorInvalidValue;
  return with_integer(
      type, [&](auto integer) { return divide<decltype(integer)>(data, count, divisor, stream); },
      [] { return cudaErrorInvalidValue; });
}

}  // namespace chainmail::ops::cuda
