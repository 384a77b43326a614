// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/kernels/cuda/launch.h"
#include "ops/kernels/cuda/move.cuh"

namespace chainmail::ops::cuda {
namespace {

static_assert(PackBlock::kElements == kBlockElements,
              "a PackBlock is what a block of threads moves");

// Tensors of several types share a launch: every block branches once, all its threads the same way.
// A product is in float64 when what it is made from is.
template <class Buffer>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(const PackBlock* blocks, Buffer* buffer, double scale, std::uint32_t* flag) {
  const PackBlock block = blocks[blockIdx.x];
  Buffer* const to = buffer + block.offset;
  const auto narrow = static_cast<float>(scale);
  bool has_nonfinite = false;
  switch (static_cast<DataType>(block.type)) {
    case DataType::kFloat16:
      has_nonfinite = move(to, static_cast<const Float16Bits*>(block.data), block.count, narrow);
      break;
    case DataType::kBFloat16:
      has_nonfinite = move(to, static_cast<const BFloat16Bits*>(block.data), block.count, narrow);
      break;
    case DataType::kFloat32:
      has_nonfinite = move(to, static_cast<const float*>(block.data), block.count, narrow);
      break;
    case DataType::kFloat64:
      has_nonfinite = move(to, static_cast<const double*>(block.data), block.count, scale);
      break;
    default:
      break;  // plan_pack lets no other type in
  }
  raise(flag, has_nonfinite);
}

template <class Buffer>
__global__ void __launch_bounds__(kThreads)
    unpack_kernel(const PackBlock* blocks, const Buffer* buffer,
                  typename element::Wide<Buffer>::Type scale, std::uint32_t* flag) {
  const PackBlock block = blocks[blockIdx.x];
  const Buffer* const from = buffer + block.offset;
  bool has_nonfinite = false;
  switch (static_cast<DataType>(block.type)) {
    case DataType::kFloat16:
      has_nonfinite = move(static_cast<Float16Bits*>(block.data), from, block.count, scale);
      break;
    case DataType::kBFloat16:
      has_nonfinite = move(static_cast<BFloat16Bits*>(block.data), from, block.count, scale);
      break;
    case DataType::kFloat32:
      has_nonfinite = move(static_cast<float*>(block.data), from, block.count, scale);
      break;
    case DataType::kFloat64:
      has_nonfinite = move(static_cast<double*>(block.data), from, block.count, scale);
      break;
    default:
      break;
  }
  raise(flag, has_nonfinite);
}

template <class Buffer>
cudaError_t pack_into(const PackBlock* blocks, std::size_t block_count, void* buffer, double scale,
                      std::uint32_t* flag, cudaStream_t stream) {
  pack_kernel<Buffer><<<static_cast<unsigned>(block_count), kThreads, 0, stream>>>(
      blocks, static_cast<Buffer*>(buffer), scale, flag);
  return cudaGetLastError();
}

template <class Buffer>
cudaError_t unpack_from(const PackBlock* blocks, std::size_t block_count, const void* buffer,
                        double scale, std::uint32_t* flag, cudaStream_t stream) {
  unpack_kernel<Buffer><<<static_cast<unsigned>(block_count), kThreads, 0, stream>>>(
      blocks, static_cast<const Buffer*>(buffer),
      static_cast<typename element::Wide<Buffer>::Type>(scale), flag);
  return cudaGetLastError();
}

}  // namespace

cudaError_t launch_pack(const PackBlock* blocks, std::size_t block_count, void* buffer,
                        DataType buffer_type, double scale, std::uint32_t* flag,
                        cudaStream_t stream) {
  if (block_count == 0) return cudaSuccess;
  switch (buffer_type) {
    case DataType::kFloat16:
      return pack_into<Float16Bits>(blocks, block_count, buffer, scale, flag, stream);
    case DataType::kBFloat16:
      return pack_into<BFloat16Bits>(blocks, block_count, buffer, scale, flag, stream);
    case DataType::kFloat32:
      return pack_into<float>(blocks, block_count, buffer, scale, flag, stream);
    case DataType::kFloat64:
      return pack_into<double>(blocks, block_count, buffer, scale, flag, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

cudaError_t launch_unpack(const PackBlock* blocks, std::size_t block_count, const void* buffer,
                          DataType buffer_type, double scale, std::uint32_t* flag,
                          cudaStream_t stream) {
  if (block_count == 0) return cudaSuccess;
  switch (buffer_type) {
    case DataType::kFloat16:
      return unpack_from<Float16Bits>(blocks, block_count, buffer, scale, flag, stream);
    case DataType::kBFloat16:
      return unpack_from<BFloat16Bits>(blocks, block_count, buffer, scale, flag, stream);
    case DataType::kFloat32:
      return unpack_from<float>(blocks, block_count, buffer, scale, flag, stream);
    case DataType::kFloat64:
      return unpack_from<double>(blocks, block_count, buffer, scale, flag, stream);
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace chainmail::ops::cuda
