// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/kernels/cuda/launch.h"
#include "ops/kernels/cuda/move.cuh"
#include "ops/kernels/with_type.h"

namespace chainmail::ops::cuda {
// Named, since nvcc calls what is in an unnamed one by the path of the file: two builds would
// differ.
inline namespace convert_kernels {

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

}  // namespace convert_kernels

cudaError_t launch_convert(void* target, DataType target_type, const void* source,
                           DataType source_type, std::size_t count, double scale,
                           std::uint32_t* flag, cudaStream_t stream) {
  if (count == 0) return cudaSuccess;
  const auto invalid = [] { return cudaErrorInvalidValue; };
  const auto convert_to = [&](auto to) {
    const auto convert_from = [&](auto from) {
      return launch<decltype(to), decltype(from)>(target, source, count, scale, flag, stream);
    };
    return with_floating(source_type, convert_from, invalid);
  };
  return with_floating(target_type, convert_to, invalid);
}

}  // namespace chainmail::ops::cuda
