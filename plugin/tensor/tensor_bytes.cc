// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/tensor/tensor_bytes.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "base/bytes.h"
#include "plugin/tensor/element_type.h"

namespace chainmail::internal {
namespace {

constexpr std::size_t kMaxShapesShown = 8;

// Dispatching copy_() costs a microsecond or two per tensor; a plain copy needs none of it.
void copy_elements(const at::Tensor& target, const at::Tensor& source) {
  if (!target.is_cpu() || !source.is_cpu() || !is_flat(target) || !is_flat(source) ||
      target.scalar_type() != source.scalar_type()) {
    target.copy_(source);
  } else if (source.numel() != 0) {
    std::memcpy(target.data_ptr(), source.const_data_ptr(), source.nbytes());
  }
}

}  // namespace

std::string why_not_dense(const at::Tensor& tensor) {
  if (!tensor.defined()) return "is undefined";
  if (tensor.layout() != at::kStrided) {
    std::ostringstream text;
    text << "is not dense but " << tensor.layout() << "; pass tensor.to_dense()";
    return text.str();
  }
  return {};
}

std::string why_not_dense_cpu(const at::Tensor& tensor) {
  std::string reason = why_not_dense(tensor);
  if (reason.empty() && !tensor.device().is_cpu()) {
    reason = "is on " + tensor.device().str() + ", not on the CPU";
  }
  return reason;
}

std::string why_not_writable(const at::Tensor& tensor) {
  if (tensor.is_contiguous() || at::has_internal_overlap(tensor) != at::MemOverlap::Yes) return {};
  return "has elements that share memory (an expanded tensor); pass tensor.contiguous()";
}

bool is_flat(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

at::Tensor resolved(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg(); }

void mark_written(const at::Tensor& tensor) {
  if (!tensor.is_inference()) {  // inference tensors have no version to count
    tensor.unsafeGetTensorImpl()->bump_version();
  }
}

std::int64_t total_elements(at::TensorList tensors) {
  std::int64_t total = 0;
  for (const at::Tensor& tensor : tensors) total += tensor.numel();
  return total;
}

at::Tensor pack_empty(at::TensorList tensors) {
  if (tensors.size() == 1 && is_flat(tensors[0])) return tensors[0];
  return at::empty({total_elements(tensors)}, tensors[0].options().requires_grad(false));
}

void pack_into(const at::Tensor& flat, at::TensorList tensors) {
  const c10::AutoGradMode no_gradients(false);
  std::int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    copy_elements(flat.narrow(0, start, tensor.numel()).view(tensor.sizes()), tensor);
    start += tensor.numel();
  }
}

at::Tensor pack(at::TensorList tensors) {
  at::Tensor flat = pack_empty(tensors);
  if (!flat.is_same(tensors[0])) pack_into(flat, tensors);
  return flat;
}

void unpack(const at::Tensor& flat, at::TensorList tensors) {
  if (tensors.size() == 1 && flat.is_same(tensors[0])) return;
  const c10::AutoGradMode no_gradients(false);
  const at::Tensor row = flat.view({flat.numel()});
  std::int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    copy_elements(tensor, row.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    mark_written(tensor);
    start += tensor.numel();
  }
}

std::uint32_t hash_shapes(at::TensorList tensors) noexcept {
  NumberHash hash;
  for (const at::Tensor& tensor : tensors) {
    hash.add(static_cast<std::uint64_t>(tensor.scalar_type()));
    hash.add(static_cast<std::uint64_t>(tensor.dim()));
    for (const std::int64_t size : tensor.sizes()) hash.add(static_cast<std::uint64_t>(size));
  }
  return hash.value();
}

std::uint32_t hash_counts(at::TensorList tensors) noexcept {
  NumberHash hash;
  for (const at::Tensor& tensor : tensors) {
    hash.add(static_cast<std::uint64_t>(tensor.scalar_type()));
    hash.add(static_cast<std::uint64_t>(tensor.numel()));
  }
  return hash.value();
}

std::string describe_shapes(at::TensorList tensors) {
  // The engine names the type, except for mixed lists and types that it sends as bytes.
  const bool shows_types =
      std::any_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
        return tensor.scalar_type() != tensors[0].scalar_type() ||
               !data_type_of(tensor.scalar_type());
      });
  std::ostringstream text;
  const std::size_t shown = std::min(tensors.size(), kMaxShapesShown);
  for (std::size_t i = 0; i < shown; ++i) {
    text << (i == 0 ? "" : ", ") << tensors[i].sizes();
    if (shows_types) text << ' ' << tensors[i].scalar_type();
  }
  if (shown < tensors.size()) text << ", ... (" << tensors.size() << " tensors)";
  return text.str();
}

}  // namespace chainmail::internal
