// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <type_traits>

#include "ops/kernels/cuda/launch.h"
#include "ops/kernels/cuda/move.cuh"
#include "ops/kernels/with_type.h"

namespace chainmail::ops::cuda {
// Named, since nvcc calls what is in an unnamed one by the path of the file: two builds would
// differ.
inline namespace pack_kernels {

static_assert(PackBlock::kElements == kBlockElements,
              "a PackBlock is what a block of threads moves");

/// What `body` returns for the tensor of a block, as a pointer to its type. Tensors of several
/// types share a launch: every block branches once, all its threads the same way.
template <class Body>
__device__ __forceinline__ bool with_tensor(const PackBlock& block, const Body& body) {
  switch (static_cast<DataType>(block.type)) {
    case DataType::kFloat16:
      return body(static_cast<Float16Bits*>(block.data));
    case DataType::kBFloat16:
      return body(static_cast<BFloat16Bits*>(block.data));
    case DataType::kFloat32:
      return body(static_cast<float*>(block.data));
    case DataType::kFloat64:
      return body(static_cast<double*>(block.data));
    default:
      return false;  // plan_pack lets no other type in
  }
}

// A product is in float64 when what it is made from is.
template <class Buffer>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const PackBlock* blocks, Buffer* buffer, double scale, std::uint32_t* flag) {
  const PackBlock block = blocks[blockIdx.x];
  raise(flag, with_tensor(block, [&](auto* from) {
          using Scale = typename element::Wide<std::remove_pointer_t<decltype(from)>>::Type;
          return move(buffer + block.offset, from, block.count, static_cast<Scale>(scale));
        }));
}

template <class Buffer>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const PackBlock* blocks, const Buffer* buffer,
                  typename element::Wide<Buffer>::Type scale, std::uint32_t* flag) {
  const PackBlock block = blocks[blockIdx.x];
  raise(flag, with_tensor(block, [&](auto* to) {
          return move(to, buffer + block.offset, block.count, scale);
        }));
}

constexpr auto kInvalid = [] { return cudaErrorInvalidValue; };

}  // namespace pack_kernels

cudaError_t launch_pack(const PackBlock* blocks, std::size_t block_count, void* buffer,
                        DataType buffer_type, double scale, std::uint32_t* flag,
                        cudaStream_t stream) {
  if (block_count == 0) return cudaSuccess;
  const auto launch = [&](auto element) {
    using Buffer = decltype(element);
    pack_kernel<Buffer><<<static_cast<unsigned>(block_count), kThreads, 0, stream>>>(
        blocks, static_cast<Buffer*>(buffer), scale, flag);
    return cudaGetLastError();
  };
  return with_floating(buffer_type, launch, kInvalid);
}

cudaError_t launch_unpack(const PackBlock* blocks, std::size_t block_count, const void* buffer,
                          DataType buffer_type, double scale, std::uint32_t* flag,
                          cudaStream_t stream) {
  if (block_count == 0) return cudaSuccess;
  const auto launch = [&](auto element) {
    using Buffer = decltype(element);
    unpack_kernel<Buffer><<<static_cast<unsigned>(block_count), kThreads, 0, stream>>>(
        blocks, static_cast<const Buffer*>(buffer),
        static_cast<typename element::Wide<Buffer>::Type>(scale), flag);
    return cudaGetLastError();
  };
  return with_floating(buffer_type, launch, kInvalid);
}

}  // namespace chainmail::ops::cuda
