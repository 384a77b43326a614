// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// torch.ops.chainmail.pack and unpack: many tensors as one flat one and back, scaled and cast on
// the way. Arithmetic is in float32 (float64 where one side has it), rounded once to what is
// written.

#include <ATen/ATen.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

using Scalar = std::optional<at::ScalarType>;

at::ScalarType arithmetic_type(at::ScalarType from, at::ScalarType to) {
  return from == at::kDouble || to == at::kDouble ? at::kDouble : at::kFloat;
}

// The values of `tensor` times `scale` as they are before they become `to`.
at::Tensor scaled(const at::Tensor& tensor, at::ScalarType to, double scale) {
  return scale == 1.0 ? tensor : tensor.to(arithmetic_type(tensor.scalar_type(), to)).mul(scale);
}

void write(const at::Tensor& place, const at::Tensor& tensor, double scale) {
  place.copy_(scaled(tensor, place.scalar_type(), scale));
}

void check_pair(const at::Tensor& tensor, at::ScalarType other, double scale, const char* what) {
  TORCH_CHECK(tensor.layout() == at::kStrided, "chainmail: ", what, ": a tensor is not dense but ",
              tensor.layout(), "; pass tensor.to_dense()");
  TORCH_CHECK_TYPE((tensor.scalar_type() == other && scale == 1.0) ||
                       (tensor.is_floating_point() && c10::isFloatingType(other)),
                   "chainmail: ", what, " scales and casts floating-point tensors; got ",
                   tensor.scalar_type(), " for ", other, " and scale ", scale);
}

at::ScalarType checked_type(at::TensorList tensors, Scalar dtype, double scale) {
  TORCH_CHECK_VALUE(!tensors.empty(), "chainmail: pack needs at least one tensor");
  const at::ScalarType type = dtype.value_or(tensors[0].scalar_type());
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_TYPE(dtype || tensor.scalar_type() == type, "chainmail: pack of ", type, " and ",
                     tensor.scalar_type(), " needs to be told the dtype of the result");
    TORCH_CHECK_VALUE(tensor.device() == tensors[0].device(), "chainmail: pack: tensors are on ",
                      tensors[0].device(), " and on ", tensor.device());
    check_pair(tensor, type, scale, "pack");
  }
  return type;
}

at::Tensor pack_tensors(at::TensorList tensors, Scalar dtype, double scale) {
  const at::ScalarType type = checked_type(tensors, dtype, scale);
  const at::Tensor flat = at::empty({total_elements(tensors)}, tensors[0].options().dtype(type));
  std::int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    write(flat.narrow(0, start, tensor.numel()).view(tensor.sizes()), tensor, scale);
    start += tensor.numel();
  }
  return flat;
}

// Sizes may be symbols here, while torch.compile looks.
at::Tensor pack_meta(at::TensorList tensors, Scalar dtype, double scale) {
  const at::ScalarType type = checked_type(tensors, dtype, scale);
  c10::SymInt total = 0;
  for (const at::Tensor& tensor : tensors) total = total + tensor.sym_numel();
  return at::empty_symint({total}, tensors[0].options().dtype(type));
}

// In operators that know their gradients.
at::Tensor pack_with_gradient(at::TensorList tensors, Scalar dtype, double scale) {
  const at::ScalarType type = checked_type(tensors, dtype, scale);
  std::vector<at::Tensor> parts;
  parts.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) {
    parts.push_back(scaled(tensor, type, scale).to(type).flatten());
  }
  return at::cat(parts);
}

bool needs_gradient(at::TensorList tensors) {
  return c10::GradMode::is_enabled() &&
         std::any_of(tensors.begin(), tensors.end(),
                     [](const at::Tensor& tensor) { return tensor.requires_grad(); });
}

using Pack = at::Tensor(at::TensorList, Scalar, double);
using Unpack = void(const at::Tensor&, at::TensorList, double);

at::Tensor pack_autograd(at::TensorList tensors, Scalar dtype, double scale) {
  if (needs_gradient(tensors)) return pack_with_gradient(tensors, dtype, scale);
  static const auto below =
      c10::Dispatcher::singleton().findSchemaOrThrow("chainmail::pack", "").typed<Pack>();
  const at::AutoDispatchBelowADInplaceOrView guard;
  return below.call(tensors, dtype, scale);
}

void check_unpack(const at::Tensor& flat, at::TensorList tensors, double scale) {
  for (const at::Tensor& tensor : tensors) {
    TORCH_CHECK_VALUE(tensor.device() == flat.device(), "chainmail: unpack: tensors are on ",
                      flat.device(), " and on ", tensor.device());
    check_pair(flat, tensor.scalar_type(), scale, "unpack");
  }
}

void unpack_tensors(const at::Tensor& flat, at::TensorList tensors, double scale) {
  check_unpack(flat, tensors, scale);
  const std::int64_t total = total_elements(tensors);
  TORCH_CHECK_VALUE(flat.numel() == total, "chainmail: unpack: the flat tensor has ", flat.numel(),
                    " elements, the tensors ", total);
  for (const at::Tensor& tensor : tensors) {
    const std::string reason = why_not_writable(tensor);
    TORCH_CHECK_VALUE(reason.empty(), "chainmail: unpack cannot write to a tensor that ", reason);
  }
  const at::Tensor row = flat.reshape({total});
  std::int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    write(tensor, row.narrow(0, start, tensor.numel()).view(tensor.sizes()), scale);
    start += tensor.numel();
  }
}

void unpack_autograd(const at::Tensor& flat, at::TensorList tensors, double scale) {
  TORCH_CHECK(!needs_gradient(tensors) && !needs_gradient(flat),
              "chainmail: unpack has no gradient, and a tensor requires one; call it under no_grad "
              "or on detached tensors, or use flat.split");
  static const auto below =
      c10::Dispatcher::singleton().findSchemaOrThrow("chainmail::unpack", "").typed<Unpack>();
  const at::AutoDispatchBelowADInplaceOrView guard;
  below.call(flat, tensors, scale);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(chainmail, library) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  library.def("pack(Tensor[] tensors, *, ScalarType? dtype=None, float scale=1.0) -> Tensor", tags);
  library.def("unpack(Tensor flat, Tensor(a!)[] tensors, *, float scale=1.0) -> ()", tags);
}

// Any device, and no tensors at all, which is refused.
TORCH_LIBRARY_IMPL(chainmail, CompositeExplicitAutograd, library) {
  library.impl("pack", &pack_tensors);
  library.impl("unpack", &unpack_tensors);
}

TORCH_LIBRARY_IMPL(chainmail, Meta, library) {
  library.impl("pack", &pack_meta);
  library.impl("unpack", &check_unpack);
}

TORCH_LIBRARY_IMPL(chainmail, Autograd, library) {
  library.impl("pack", &pack_autograd);
  library.impl("unpack", &unpack_autograd);
}

}  // namespace chainmail::internal
