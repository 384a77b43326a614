// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/gradients/bucket_pool.h"

#include <ATen/ATen.h>

#include <chainmail/error.h>

namespace chainmail::internal {

// The smallest buffer that is large enough; else another one, in place of a small one once there
// are enough of them.
at::Tensor BucketPool::take(std::int64_t elements, c10::ScalarType dtype) {
  const std::int64_t bytes = elements * static_cast<std::int64_t>(c10::elementSize(dtype));
  Buffer* best = nullptr;
  Buffer* smallest = nullptr;
  for (Buffer& buffer : buffers_) {
    if (buffer.is_out) continue;
    const std::int64_t size = buffer.memory.numel();
    if (size >= bytes && (best == nullptr || size < best->memory.numel())) best = &buffer;
    if (smallest == nullptr || size < smallest->memory.numel()) smallest = &buffer;
  }
  if (best == nullptr) {
    if (buffers_.size() < kBuffers) smallest = &buffers_.emplace_back();
    if (smallest == nullptr) {
      throw InvalidArgument(
          "all memory for gradients is on its way: an earlier backward ended with an exception, "
          "after which zero_grad() of the multi-node optimizer is needed");
    }
    smallest->memory = at::Tensor();  // before there is another one
    smallest->memory = at::empty({bytes}, c10::TensorOptions(c10::kByte));
    best = smallest;
  }
  best->is_out = true;
  return best->memory.narrow(0, 0, bytes).view(dtype);
}

void BucketPool::give_back(const at::Tensor& row) {
  for (Buffer& buffer : buffers_) {
    if (buffer.is_out && buffer.memory.is_alias_of(row)) buffer.is_out = false;
  }
}

std::size_t BucketPool::bytes() const noexcept {
  std::size_t sum = 0;
  for (const Buffer& buffer : buffers_) {
    if (buffer.memory.defined()) sum += static_cast<std::size_t>(buffer.memory.numel());
  }
  return sum;
}

}  // namespace chainmail::internal
