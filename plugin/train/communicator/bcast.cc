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
constexpr std::size_t kDirectBytes = std::size_t{4} << 20;
// Every packed tensor starts at a multiple of the largest element.
constexpr std::int64_t kAlignment = 16;

std::int64_t padded_bytes(const at::Tensor& tensor) {
  return (static_cast<std::int64_t>(tensor.nbytes()) + kAlignment - 1) / kAlignment * kAlignment;
}

// The place of `tensor` in a byte buffer, with its dtype and shape.
at::Tensor place_in(const at::Tensor& buffer, std::int64_t begin, const at::Tensor& tensor) {
  return buffer.narrow(0, begin, static_cast<std::int64_t>(tensor.nbytes()))
      .view(tensor.scalar_type())
      .view(tensor.sizes());
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
    if (internal::is_flat(tensor) && tensor.nbytes() >= kDirectBytes) {
      internal::broadcast(*impl_->group, internal::part_of(tensor), root,
                          internal::label_of(tensor));
      internal::mark_written(tensor);
    } else {
      small.push_back(tensor);
      small_bytes += padded_bytes(tensor);
    }
  }
  if (small.empty()) return;
  const at::Tensor buffer =
      at::zeros({std::max<std::int64_t>(small_bytes, 1)}, c10::TensorOptions(c10::kByte));
  const auto copy_small = [&](bool into_buffer) {
    std::int64_t begin = 0;
    for (const at::Tensor& tensor : small) {
      const at::Tensor place = place_in(buffer, begin, tensor);
      into_buffer ? place.copy_(tensor) : tensor.copy_(place);
      begin += padded_bytes(tensor);
    }
  };
  if (rank() == root) copy_small(/*into_buffer=*/true);
  internal::broadcast(*impl_->group,
                      {internal::part_of(buffer).data, static_cast<std::size_t>(small_bytes)}, root,
                      internal::label_of(small));
  if (rank() != root) copy_small(/*into_buffer=*/false);
}

}  // namespace chainmail
