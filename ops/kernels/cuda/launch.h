// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The kernels of DeviceKernels, as functions that libchainmail_cuda.so's DeviceApi calls.
//
// Each queues one launch on `stream` and returns CUDA's code; counts may exceed 2^31 and pointers
// need the alignment of their element only.

#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "ops/kernels/pack_block.h"
#include "ops/types.h"

namespace chainmail::ops::cuda {

cudaError_t launch_convert(void* target, DataType target_type, const void* source,
                           DataType source_type, std::size_t count, double scale,
                           std::uint32_t* flag, cudaStream_t stream);

cudaError_t launch_pack(const PackBlock* blocks, std::size_t block_count, void* buffer,
                        DataType buffer_type, double scale, std::uint32_t* flag,
                        cudaStream_t stream);
cudaError_t launch_unpack(const PackBlock* blocks, std::size_t block_count, const void* buffer,
                          DataType buffer_type, double scale, std::uint32_t* flag,
                          cudaStream_t stream);

cudaError_t launch_round_parts(void* messages, std::size_t part, const void* source,
                               std::size_t count, double scale, WireFormat wire,
                               cudaStream_t stream);
cudaError_t launch_add_parts(void* result, const void* messages, std::size_t part,
                             int message_count, int own, const void* own_message, std::size_t count,
                             WireFormat wire, bool is_mean, cudaStream_t stream);
cudaError_t launch_widen_parts(void* target, const void* messages, std::size_t part,
                               std::size_t count, WireFormat wire, std::uint32_t* flag,
                               cudaStream_t stream);

cudaError_t launch_divide(void* data, DataType type, std::size_t count, std::int64_t divisor,
                          cudaStream_t stream);

}  // namespace chainmail::ops::cuda
