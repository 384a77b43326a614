// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// torch.ops.chainmail.int8_all_reduce_ and int4_all_reduce_: all-reduces that travel between nodes
// as whole numbers of a scale per block (ops/kernels/block_wire.h), and keep what that rounds away
// in a tensor of the caller's, to be added the next time: a call of c10d knows nothing of the one
// before. They block until the result is there. On CPUs, of float32, in place, without gradients.

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>
#include <c10/core/SymInt.h>
#include <torch/library.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "plugin/c10d/make_backend.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

struct IntegerVariant {
  const char* name;
  ops::WireFormat wire;
};

constexpr std::array<IntegerVariant, 2> kIntegerVariants = {{
    {"int8_all_reduce_", ops::WireFormat::kInt8},
    {"int4_all_reduce_", ops::WireFormat::kInt4},
}};

// What needs no group. Sizes may be symbols here, while torch.compile looks, and so may the count,
// which changes in each step.
ops::ReduceOp check_integer_call(const IntegerVariant& variant, const at::Tensor& input,
                                 const at::Tensor& residual, const c10::SymInt& exchanges,
                                 const std::string& reduce_op) {
  TORCH_CHECK_VALUE(reduce_op == "sum" || reduce_op == "avg", "chainmail: ", variant.name,
                    " takes sums and means, \"sum\" or \"avg\", not \"", reduce_op, "\"");
  TORCH_CHECK_VALUE(input.scalar_type() == at::kFloat, "chainmail: ", variant.name,
                    " rounds float32, and the tensor is ", c10::toString(input.scalar_type()));
  TORCH_CHECK_VALUE(
      residual.scalar_type() == at::kFloat && residual.device() == input.device() &&
          residual.sym_numel() == input.sym_numel() * 2,
      "chainmail: ", variant.name,
      " keeps what it rounds away in two rows of as many float32 as the tensor has, on its device: "
      "torch.zeros(2, tensor.numel()); the residual is ",
      c10::toString(residual.scalar_type()), " of shape ", residual.sym_sizes(), " on ",
      residual.device(), ", the tensor has ", input.sym_numel(), " elements on ", input.device());
  TORCH_CHECK_VALUE(residual.is_contiguous(), "chainmail: ", variant.name,
                    ": the residual is not contiguous, and its elements belong to those of the "
                    "tensor one by one: keep one that torch.zeros(2, tensor.numel()) has made");
  const auto known = exchanges.maybe_as_int();
  TORCH_CHECK_VALUE(known.value_or(0) >= 0, "chainmail: ", variant.name,
                    ": exchanges counts the calls since the residual was zeros, and is ",
                    exchanges);
  return ops::parse_reduce_op(reduce_op);
}

void reduce_as_integers(const IntegerVariant& variant, const at::Tensor& input,
                        const at::Tensor& residual, const c10::SymInt& exchanges,
                        const std::string& reduce_op, const std::string& group_name) {
  const ops::ReduceOp op = check_integer_call(variant, input, residual, exchanges, reduce_op);
  const at::MemOverlapStatus overlap = at::get_overlap_status(input, residual);
  TORCH_CHECK_VALUE(
      overlap != at::MemOverlapStatus::Full && overlap != at::MemOverlapStatus::Partial,
      "chainmail: ", variant.name, ": tensor and residual share memory, and each is written to");
  find_backend(group_name)
      ->all_reduce(
          input, op, std::nullopt, variant.wire,
          ChainmailBackend::Feedback{
              residual, static_cast<std::uint64_t>(exchanges.guard_int(__FILE__, __LINE__))});
  mark_written(input);
  mark_written(residual);
}

void reduce_as_integers_meta(const IntegerVariant& variant, const at::Tensor& input,
                             const at::Tensor& residual, const c10::SymInt& exchanges,
                             const std::string& reduce_op, const std::string& /*group_name*/) {
  static_cast<void>(check_integer_call(variant, input, residual, exchanges, reduce_op));
}

using IntegerCall = void(const at::Tensor&, const at::Tensor&, c10::SymInt, const std::string&,
                         const std::string&);

void reduce_without_gradient(const IntegerVariant& variant, const at::Tensor& input,
                             const at::Tensor& residual, const c10::SymInt& exchanges,
                             const std::string& reduce_op, const std::string& group_name) {
  TORCH_CHECK(!c10::GradMode::is_enabled() || (!input.requires_grad() && !residual.requires_grad()),
              "chainmail: ", variant.name,
              " has no gradient, and a tensor requires one; call it under no_grad or on a detached "
              "tensor");
  const at::AutoDispatchBelowADInplaceOrView below;
  c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("chainmail::") + variant.name).c_str(), "")
      .typed<IntegerCall>()
      .call(input, residual, exchanges, reduce_op, group_name);
}

/// Registers `function` for both.
template <typename Function>
void implement_integers(torch::Library& library, Function function) {
  for (const IntegerVariant& variant : kIntegerVariants) {
    library.impl(variant.name,
                 [&variant, function](const at::Tensor& input, const at::Tensor& residual,
                                      c10::SymInt exchanges, const std::string& reduce_op,
                                      const std::string& group_name) {
                   function(variant, input, residual, exchanges, reduce_op, group_name);
                 });
  }
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(chainmail, library) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  for (const IntegerVariant& variant : kIntegerVariants) {
    library.def((std::string(variant.name) +
                 "(Tensor(a!) input, Tensor(b!) residual, SymInt exchanges, str reduce_op, str "
                 "group_name) -> ()")
                    .c_str(),
                tags);
  }
}

TORCH_LIBRARY_IMPL(chainmail, CPU, library) { implement_integers(library, &reduce_as_integers); }

TORCH_LIBRARY_IMPL(chainmail, Meta, library) {
  implement_integers(library, &reduce_as_integers_meta);
}

TORCH_LIBRARY_IMPL(chainmail, Autograd, library) {
  implement_integers(library, &reduce_without_gradient);
}

}  // namespace chainmail::internal
