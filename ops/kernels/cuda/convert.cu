// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/kernels/cuda/launch.h"
#include "ops/kernels/cuda/move.cuh"

namespace chainmail::ops::cuda {
namespace {

// A block moves kBlockElements; a grid may have 2^31 - 1 blocks, 16 Ti elements.
template <class To, class From>
__global__ void __launch_bounds__(kThreads)
    convert_kernel(To* to, const From* from, std::size_t count,
                   typename element::Wide<From>::Type scale, std::uint32_t* flag) {
  const std::size_t begin = static_cast<std::size_t>(blockIdx.x) * kBlockElements;
  const std::size_t left = count - begin;
  const unsigned length = left < kBlockElements ? static_cast<unsigned>(left) : kBlockElements;
  raise(flag, move(to + begin, from + begin, length, scale));
}

template <class To, class From>
cudaError_t launch(void* target, const void* source, std::size_t count, double scale,
                   std::uint32_t* flag, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>((count + kBlockElements - 1) / kBlockElements);
  convert_kernel<To, From><<<blocks, kThreads, 0, stream>>>(
      static_cast<To*>(target), static_cast<const From*>(source), count,
      static_cast<typename element::Wide<From>::Type>(scale), flag);
  return cudaGetLastError();
}

template <class To>
cudaError_t launch_from(void* target, const void* source, DataType source_type, std::size_t count,
                        double scale, std::uint32_t* flag, cudaStream_t stream) {
  switch (source_type) {
    case DataType::kFloat16:
      return launch<To, Float16Bits>(target, source, count, scale, flag, stream);
    case DataType::kBFloat16:
      return launch<To, BFloat16Bits>(target, source, count, scale, flag, stream);
    case DataType::kFloat32:
      return launch<To, float>(target, source, count, scale, flag, stream);
    case DataType::kFloat64:
      return launch<To, double>(target, source, count, scale, flag, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_convert(void* target, DataType target_type, const void* source,
                           DataType source_type, std::size_t count, double scale,
                           std::uint32_t* flag, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  switch (target_type) {
    case DataType::kFloat16:
      return launch_from<Float16Bits>(target, source, source_type, count, scale, flag, stream);
    case DataType::kBFloat16:
      return launch_from<BFloat16Bits>(target, source, source_type, count, scale, flag, stream);
    case DataType::kFloat32:
      return launch_from<float>(target, source, source_type, count, scale, flag, stream);
    case DataType::kFloat64:
      return launch_from<double>(target, source, source_type, count, scale, flag, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace chainmail::ops::cuda
