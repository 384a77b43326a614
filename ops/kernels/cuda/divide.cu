// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <type_traits>

#include "ops/kernels/cuda/launch.h"
#include "ops/kernels/cuda/move.cuh"

namespace chainmail::ops::cuda {
namespace {

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

}  // namespace

cudaError_t launch_divide(void* data, DataType type, std::size_t count, std::int64_t divisor,
                          cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  if (divisor < 1) return cudaErrorInvalidValue;
  switch (type) {
    case DataType::kUInt8:
      return divide<std::uint8_t>(data, count, divisor, stream);
    case DataType::kInt8:
      return divide<std::int8_t>(data, count, divisor, stream);
    case DataType::kInt16:
      return divide<std::int16_t>(data, count, divisor, stream);
    case DataType::kInt32:
      return divide<std::int32_t>(data, count, divisor, stream);
    case DataType::kInt64:
      return divide<std::int64_t>(data, count, divisor, stream);
    case DataType::kUInt16:
      return divide<std::uint16_t>(data, count, divisor, stream);
    case DataType::kUInt32:
      return divide<std::uint32_t>(data, count, divisor, stream);
    case DataType::kUInt64:
      return divide<std::uint64_t>(data, count, divisor, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace chainmail::ops::cuda
