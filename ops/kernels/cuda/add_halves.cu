// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <type_traits>

#include "ops/kernels/cuda/launch.h"
#include "ops/kernels/cuda/move.cuh"

namespace chainmail::ops::cuda {
namespace {

template <class Half>
__device__ __forceinline__ const Half* part_at(const Half* parts, std::size_t stride, int own,
                                               const Half* own_part, int r) {
  return r == own ? own_part : parts + static_cast<std::size_t>(r) * stride;
}

// Sum is float or double. Additions are plain: no product is near that could be fused with them.
template <class Half, class Sum>
__global__ void __launch_bounds__(kThreads)
    add_halves_kernel(Half* result, const Half* parts, std::size_t stride, int part_count, int own,
                      const Half* own_part, std::size_t count) {
  const std::size_t threads = static_cast<std::size_t>(gridDim.x) * kThreads;
  const std::size_t me = static_cast<std::size_t>(blockIdx.x) * kThreads + threadIdx.x;
  // Parts begin where halves are on 16 bytes: all or none, since `stride` is a multiple of kLanes
  // or nothing is a vector.
  const bool has_vectors =
      is_aligned(result) && is_aligned(parts) && is_aligned(own_part) && stride % kLanes == 0;
  const std::size_t vectors = has_vectors ? count / kLanes : 0;
  for (std::size_t v = me; v < vectors; v += threads) {
    Sum sums[kLanes];
    for (int r = 0; r < part_count; ++r) {
      const Lanes<Half> lanes = load(part_at(parts, stride, own, own_part, r) + v * kLanes);
#pragma unroll
      for (int lane = 0; lane < kLanes; ++lane) {
        const Sum term = element::widen(lanes.values[lane]);
        sums[lane] = r == 0 ? term : sums[lane] + term;
      }
    }
    Lanes<Half> out;
#pragma unroll
    for (int lane = 0; lane < kLanes; ++lane) element::round(sums[lane], out.values[lane]);
    store(result + v * kLanes, out);
  }
  for (std::size_t i = vectors * kLanes + me; i < count; i += threads) {
    Sum sum = element::widen(part_at(parts, stride, own, own_part, 0)[i]);
    for (int r = 1; r < part_count; ++r) {
      sum += element::widen(part_at(parts, stride, own, own_part, r)[i]);
    }
    element::round(sum, result[i]);
  }
}

template <class Half, class Sum>
cudaError_t launch(void* result, const void* parts, std::size_t stride, int part_count, int own,
                   const void* own_part, std::size_t count, cudaStream_t stream) {
  constexpr std::size_t kPerBlock = std::size_t{kThreads} * kLanes;
  constexpr std::size_t kMostBlocks = 1 << 16;
  const std::size_t blocks = (count + kPerBlock - 1) / kPerBlock;
  add_halves_kernel<Half, Sum>
      <<<static_cast<unsigned>(blocks < kMostBlocks ? blocks : kMostBlocks), kThreads, 0, stream>>>(
          static_cast<Half*>(result), static_cast<const Half*>(parts), stride, part_count, own,
          static_cast<const Half*>(own_part), count);
  return cudaGetLastError();
}

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

cudaError_t launch_add_halves(void* result, const void* parts, std::size_t stride, int part_count,
                              int own, const void* own_part, std::size_t count, WireFormat wire,
                              bool is_double, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  if (part_count < 1) return cudaErrorInvalidValue;
  switch (wire) {
    case WireFormat::kFloat16:
      return is_double ? launch<Float16Bits, double>(result, parts, stride, part_count, own,
                                                     own_part, count, stream)
                       : launch<Float16Bits, float>(result, parts, stride, part_count, own,
                                                    own_part, count, stream);
    case WireFormat::kBFloat16:
      return is_double ? launch<BFloat16Bits, double>(result, parts, stride, part_count, own,
                                                      own_part, count, stream)
                       : launch<BFloat16Bits, float>(result, parts, stride, part_count, own,
                                                     own_part, count, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

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
