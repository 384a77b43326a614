// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// root's tensors in place of everybody's.

#include <algorithm>

#include <ATen/ATen.h>

#include <chainmail/communicator.h>

#include "plugin/tensor/tensor_bytes.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/parts.h"
#include "plugin/train/tensor_checks.h"

namespace chainmail {

namespace {

// Tensors of at least this size travel from where they lie, smaller ones together.
constexpr std::int64_t kDirectBytes = std::int64_t{4} << 20;
// Every packed tensor starts at a multiple of the largest element.
constexpr std::int64_t kAlignment = 16;

std::int64_t bytes_of(const at::Tensor& tensor) {
  return tensor.numel() * static_cast<std::int64_t>(tensor.element_size());
}

std::int64_t padded(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

at::Tensor bytes_tensor(std::int64_t bytes) {
  return at::zeros({std::max<std::int64_t>(bytes, 1)}, c10::TensorOptions(c10::kByte));
}

// The place of `tensor` in a byte buffer, with its dtype and shape.
at::Tensor place_in(const at::Tensor& buffer, std::int64_t begin, const at::Tensor& tensor) {
  return buffer.narrow(0, begin, bytes_of(tensor)).view(tensor.scalar_type()).view(tensor.sizes());
}

}  // namespace

void Communicator::bcast(at::ArrayRef<at::Tensor> tensors, int root) {
  impl_->check_usable();
  impl_->check_root(root, "bcast");
  internal::check_dense(tensors, "bcast");
  const at::NoGradGuard no_grad;
  if (!std::all_of(tensors.begin(), tensors.end(), [](const auto& t) { return t.is_cpu(); })) {
    // Through host memory: this gives ranks what they begin with, and need not be quick.
    std::vector<at::Tensor> copies;
    for (const at::Tensor& tensor : tensors) copies.push_back(tensor.to(c10::kCPU));
    bcast(copies, root);
    for (std::size_t i = 0; i < copies.size() && rank() != root; ++i) tensors[i].copy_(copies[i]);
    return;
  }

  std::vector<at::Tensor> small;
  std::int64_t small_bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (internal::is_flat(tensor) && bytes_of(tensor) >= kDirectBytes) {
      internal::broadcast(*impl_->group, static_cast<std::byte*>(tensor.data_ptr()),
                          tensor.nbytes(), root, internal::label_of(tensor));
      internal::mark_written(tensor);
    } else {
      small.push_back(tensor);
      small_bytes += padded(bytes_of(tensor));
    }
  }
  if (small.empty()) return;
  const at::Tensor buffer = bytes_tensor(small_bytes);
  const auto for_each_place = [&](const auto& visit) {
    std::int64_t begin = 0;
    for (const at::Tensor& tensor : small) {
      visit(place_in(buffer, begin, tensor), tensor);
      begin += padded(bytes_of(tensor));
    }
  };
  if (rank() == root) {
    for_each_place([](const at::Tensor& place, const at::Tensor& tensor) { place.copy_(tensor); });
  }
  internal::broadcast(*impl_->group, static_cast<std::byte*>(buffer.data_ptr()),
                      static_cast<std::size_t>(small_bytes), root, internal::label_of(small));
  if (rank() != root) {
    for_each_place([](const at::Tensor& place, const at::Tensor& tensor) { tensor.copy_(place); });
  }
}

}  // namespace chainmail
