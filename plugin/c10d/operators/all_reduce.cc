// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// torch.ops.chainmail.{,hierarchical_,two_dimensional_,fp16_}all_reduce{,_}: all-reduces by name of
// algorithm on any registered process group of ours. They block until the result is there.
//
// The functional ones have gradients, since the sum over ranks is a linear map that is its own
// transpose: what flows back is all-reduced in the same way. Collective therefore in backward, too:
// a rank that leaves the result out of its loss leaves the others waiting.

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "plugin/c10d/collectives/elements.h"
#include "plugin/c10d/make_backend.h"
#include "plugin/tensor/tensor_bytes.h"

namespace chainmail::internal {
namespace {

struct Variant {
  const char* name;
  const char* in_place_name;
  std::optional<ops::Algorithm> algorithm;  ///< unset: the group's
  std::optional<ops::WireFormat> wire;      ///< unset: the group's
};

constexpr std::array<Variant, 4> kVariants = {{
    {"all_reduce", "all_reduce_", std::nullopt, std::nullopt},
    {"hierarchical_all_reduce", "hierarchical_all_reduce_", ops::Algorithm::kHierarchical,
     std::nullopt},
    {"two_dimensional_all_reduce", "two_dimensional_all_reduce_", ops::Algorithm::kTwoDimensional,
     std::nullopt},
    {"fp16_all_reduce", "fp16_all_reduce_", ops::Algorithm::kHierarchical,
     ops::WireFormat::kFloat16},
}};

using Functional = at::Tensor(const at::Tensor&, const std::string&, const std::string&);
using InPlace = void(const at::Tensor&, const std::string&, const std::string&);

template <typename Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow((std::string("chainmail::") + name).c_str(), "")
      .typed<Signature>();
}

// Checks that need no group.
ops::ReduceOp checked_op(const Variant& variant, const at::Tensor& input,
                         const std::string& reduce_op) {
  try {
    const ops::ReduceOp op = ops::parse_reduce_op(reduce_op);
    static_cast<void>(elements_to_reduce(input.scalar_type(), op, variant.name));
    return op;
  } catch (const InvalidArgument& mistake) {
    TORCH_CHECK_VALUE(false, "chainmail: ", variant.name, ": ", mistake.what());
  }
}

void reduce_in_place(const Variant& variant, const at::Tensor& input, const std::string& reduce_op,
                     const std::string& group_name) {
  const ops::ReduceOp op = checked_op(variant, input, reduce_op);
  find_backend(group_name)->all_reduce(input, op, variant.algorithm, variant.wire);
  mark_written(input);
}

at::Tensor reduce(const Variant& variant, const at::Tensor& input, const std::string& reduce_op,
                  const std::string& group_name) {
  at::Tensor output = input.clone(at::MemoryFormat::Contiguous);
  reduce_in_place(variant, output, reduce_op, group_name);
  return output;
}

/// The functional operators, with what is needed on the way back.
struct DifferentiableAllReduce : torch::autograd::Function<DifferentiableAllReduce> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& input,
                            const std::string& reduce_op, const std::string& group_name,
                            const std::string& name) {
    context->saved_data["reduce_op"] = reduce_op;
    context->saved_data["group_name"] = group_name;
    context->saved_data["name"] = name;
    const at::AutoDispatchBelowADInplaceOrView below;
    return find_operator<Functional>(name.c_str()).call(input, reduce_op, group_name);
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const std::string name = context->saved_data["name"].toStringRef();
    const std::string reduce_op = context->saved_data["reduce_op"].toStringRef();
    TORCH_CHECK_NOT_IMPLEMENTED(reduce_op == "sum" || reduce_op == "avg", "chainmail: ", name,
                                " has a gradient under sum and avg, not under ", reduce_op,
                                "; pass input.detach()");
    const at::Tensor gradient =
        find_operator<Functional>(name.c_str())
            .call(gradients[0], reduce_op, context->saved_data["group_name"].toStringRef());
    return {gradient, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor reduce_with_gradient(const Variant& variant, const at::Tensor& input,
                                const std::string& reduce_op, const std::string& group_name) {
  if (c10::GradMode::is_enabled() && input.requires_grad()) {
    return DifferentiableAllReduce::apply(input, reduce_op, group_name, variant.name);
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return find_operator<Functional>(variant.name).call(input, reduce_op, group_name);
}

void reduce_in_place_without_gradient(const Variant& variant, const at::Tensor& input,
                                      const std::string& reduce_op, const std::string& group_name) {
  TORCH_CHECK(!c10::GradMode::is_enabled() || !input.requires_grad(),
              "chainmail: ", variant.in_place_name,
              " has no gradient, and its tensor requires one; call ", variant.name,
              ", or call this one under no_grad or on a detached tensor");
  const at::AutoDispatchBelowADInplaceOrView below;
  find_operator<InPlace>(variant.in_place_name).call(input, reduce_op, group_name);
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(chainmail, library) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  const std::string arguments = " input, str reduce_op, str group_name) -> ";
  for (const Variant& variant : kVariants) {
    library.def((variant.name + ("(Tensor" + arguments) + "Tensor").c_str(), tags);
    library.def((variant.in_place_name + ("(Tensor(a!)" + arguments) + "()").c_str(), tags);
  }
}

namespace {

/// Registers `function(variant, input, reduce_op, group_name)` for every variant.
template <typename Result>
void implement(torch::Library& library, const char* Variant::*name,
               Result (*function)(const Variant&, const at::Tensor&, const std::string&,
                                  const std::string&)) {
  for (const Variant& variant : kVariants) {
    library.impl(variant.*name,
                 [&variant, function](const at::Tensor& input, const std::string& reduce_op,
                                      const std::string& group_name) {
                   return function(variant, input, reduce_op, group_name);
                 });
  }
}

void reduce_in_place_meta(const Variant& variant, const at::Tensor& input,
                          const std::string& reduce_op, const std::string& /*group_name*/) {
  static_cast<void>(checked_op(variant, input, reduce_op));
}

at::Tensor reduce_meta(const Variant& variant, const at::Tensor& input,
                       const std::string& reduce_op, const std::string& /*group_name*/) {
  static_cast<void>(checked_op(variant, input, reduce_op));
  return at::empty_like(input, input.options(), at::MemoryFormat::Contiguous);
}

}  // namespace

TORCH_LIBRARY_IMPL(chainmail, CPU, library) {
  implement(library, &Variant::name, &reduce);
  implement(library, &Variant::in_place_name, &reduce_in_place);
}

TORCH_LIBRARY_IMPL(chainmail, CUDA, library) {
  implement(library, &Variant::name, &reduce);
  implement(library, &Variant::in_place_name, &reduce_in_place);
}

TORCH_LIBRARY_IMPL(chainmail, Meta, library) {
  implement(library, &Variant::name, &reduce_meta);
  implement(library, &Variant::in_place_name, &reduce_in_place_meta);
}

TORCH_LIBRARY_IMPL(chainmail, Autograd, library) {
  implement(library, &Variant::name, &reduce_with_gradient);
  implement(library, &Variant::in_place_name, &reduce_in_place_without_gradient);
}

}  // namespace chainmail::internal
