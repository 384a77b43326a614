// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/tensors.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/GradMode.h>

#include <sstream>

namespace chainmail::internal {
namespace {

constexpr std::size_t kMaxShapesShown = 8;

class Fnv1a {
 public:
  void add(std::uint64_t value) noexcept {
    for (int byte = 0; byte < 8; ++byte) {
      hash_ = (hash_ ^ (value & 0xffU)) * 0x100000001b3U;
      value >>= 8U;
    }
  }
  std::uint32_t value() const noexcept {
    return static_cast<std::uint32_t>(hash_ ^ (hash_ >> 32U));
  }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325U;
};

}  // namespace

void check_tensors(at::TensorList tensors, const char* what) {
  TORCH_CHECK(!tensors.empty(), "chainmail: ", what, " needs at least one tensor");
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.defined(), "chainmail: ", what, " got an undefined tensor");
    TORCH_CHECK(tensor.layout() == at::kStrided, "chainmail: ", what,
                " does not support sparse tensors (layout ", tensor.layout(),
                "); convert with to_dense()");
    TORCH_CHECK(tensor.device().is_cpu(), "chainmail: ", what, " needs CPU tensors, got one on ",
                tensor.device());
    TORCH_CHECK(tensor.scalar_type() == tensors[0].scalar_type(), "chainmail: ", what,
                " needs tensors of one type, got ", tensors[0].scalar_type(), " and ",
                tensor.scalar_type());
  }
}

const at::Tensor& only_tensor(const std::vector<at::Tensor>& tensors, const char* what) {
  TORCH_CHECK(tensors.size() == 1, "chainmail: ", what, " takes one tensor, got ", tensors.size());
  check_tensors(tensors, what);
  return tensors[0];
}

void check_writable(at::TensorList tensors, const char* what) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK(tensor.is_contiguous() || at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
                "chainmail: ", what,
                " cannot write to a tensor whose elements share memory (expanded?); clone it");
  }
}

bool is_flat(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
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

at::Tensor pack(at::TensorList tensors) {
  at::Tensor flat = pack_empty(tensors);
  if (flat.is_same(tensors[0])) return flat;
  const c10::AutoGradMode no_gradients(false);
  std::int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    flat.narrow(0, start, tensor.numel()).view(tensor.sizes()).copy_(tensor);
    start += tensor.numel();
  }
  return flat;
}

void unpack(const at::Tensor& flat, at::TensorList tensors) {
  if (tensors.size() == 1 && flat.is_same(tensors[0])) return;
  const c10::AutoGradMode no_gradients(false);
  std::int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    tensor.copy_(flat.narrow(0, start, tensor.numel()).view(tensor.sizes()));
    start += tensor.numel();
  }
}

std::uint32_t hash_shapes(at::TensorList tensors) noexcept {
  Fnv1a hash;
  for (const at::Tensor& tensor : tensors) {
    hash.add(static_cast<std::uint64_t>(tensor.scalar_type()));
    hash.add(static_cast<std::uint64_t>(tensor.dim()));
    for (const std::int64_t size : tensor.sizes()) hash.add(static_cast<std::uint64_t>(size));
  }
  return hash.value();
}

std::string describe_shapes(at::TensorList tensors) {
  std::ostringstream text;
  for (std::size_t i = 0; i < tensors.size() && i < kMaxShapesShown; ++i) {
    text << (i == 0 ? "" : ", ") << tensors[i].sizes();
  }
  if (tensors.size() > kMaxShapesShown) text << ", ... (" << tensors.size() << " tensors)";
  if (!tensors.empty()) text << " " << tensors[0].scalar_type();
  return text.str();
}

}  // namespace chainmail::internal
