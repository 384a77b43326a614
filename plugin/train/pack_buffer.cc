// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/pack_buffer.h"

#include <algorithm>

#include <ATen/Functions.h>

#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {

at::Tensor PackBuffer::pack(at::ArrayRef<at::Tensor> tensors) {
  const c10::ScalarType type = tensors.front().scalar_type();
  const std::int64_t count = total_elements(tensors);
  const auto bytes = count * static_cast<std::int64_t>(c10::elementSize(type));
  const c10::Device device = tensors.front().device();
  if (!bytes_.defined() || bytes_.numel() < bytes || bytes_.device() != device) {
    bytes_.reset();  // the old one first, so that the peak is not the sum of both
    bytes_ = at::empty({std::max<std::int64_t>(bytes, 1)},
                       c10::TensorOptions(c10::kByte).device(device));
  }
  at::Tensor flat = bytes_.narrow(0, 0, bytes).view(type);
  pack_into(flat, tensors);
  return flat;
}

std::vector<std::vector<at::Tensor>> group_by_dtype(at::ArrayRef<at::Tensor> tensors) {
  std::vector<std::vector<at::Tensor>> groups;
  for (const at::Tensor& tensor : tensors) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      return group.front().scalar_type() == tensor.scalar_type();
    });
    (found == groups.end() ? groups.emplace_back() : *found).push_back(tensor);
  }
  return groups;
}

}  // namespace chainmail::internal
