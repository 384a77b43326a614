// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// torch.ops.chainmail.*: all-reduces by name of algorithm on any registered process group of ours,
// found after linking or after a plain dlopen of the library. They block until the result is there.

#include <ATen/ATen.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>

#include <optional>
#include <string>
#include <utility>

#include "plugin/c10d/make_backend.h"

namespace chainmail::internal {
namespace {

struct Variant {
  std::optional<ops::Algorithm> algorithm;
  std::optional<ops::WireFormat> wire;
};

constexpr Variant kAsGroup{std::nullopt, std::nullopt};
constexpr Variant kHierarchical{ops::Algorithm::kHierarchical, std::nullopt};
constexpr Variant kTwoDimensional{ops::Algorithm::kTwoDimensional, std::nullopt};
constexpr Variant kFp16{ops::Algorithm::kHierarchical, ops::WireFormat::kFloat16};

template <const Variant& kVariant>
void all_reduce_in_place(const at::Tensor& input, const std::string& reduce_op,
                         const std::string& group_name) {
  find_backend(group_name)
      ->all_reduce(input, ops::parse_reduce_op(reduce_op), kVariant.algorithm, kVariant.wire);
}

template <const Variant& kVariant>
at::Tensor all_reduce(const at::Tensor& input, const std::string& reduce_op,
                      const std::string& group_name) {
  at::Tensor output = input.clone(at::MemoryFormat::Contiguous);
  all_reduce_in_place<kVariant>(output, reduce_op, group_name);
  return output;
}

void all_reduce_in_place_meta(const at::Tensor& /*input*/, const std::string& /*reduce_op*/,
                              const std::string& /*group_name*/) {}

at::Tensor all_reduce_meta(const at::Tensor& input, const std::string& /*reduce_op*/,
                           const std::string& /*group_name*/) {
  return at::empty_like(input, input.options(), at::MemoryFormat::Contiguous);
}

// Gives a group that somebody else made (Python's init_process_group) our backend.
void attach(const std::string& group_name, const std::string& options) {
  const auto group = c10d::resolve_process_group(group_name);
  BackendOptions parsed = parse_backend_options(options);
  parsed.group_name = group_name;
  set_backend(*group, make_backend(group->getStore(), group->getRank(), group->getSize(), parsed));
}

}  // namespace

TORCH_LIBRARY(chainmail, library) {
  const std::vector<at::Tag> tags{at::Tag::pt2_compliant_tag};
  for (const std::string name :
       {"all_reduce", "hierarchical_all_reduce", "two_dimensional_all_reduce", "fp16_all_reduce"}) {
    library.def((name + "_(Tensor(a!) input, str reduce_op, str group_name) -> ()").c_str(), tags);
    library.def((name + "(Tensor input, str reduce_op, str group_name) -> Tensor").c_str(), tags);
  }
  library.def("attach(str group_name, str options) -> ()", &attach);
}

TORCH_LIBRARY_IMPL(chainmail, CPU, library) {
  library.impl("all_reduce_", &all_reduce_in_place<kAsGroup>);
  library.impl("all_reduce", &all_reduce<kAsGroup>);
  library.impl("hierarchical_all_reduce_", &all_reduce_in_place<kHierarchical>);
  library.impl("hierarchical_all_reduce", &all_reduce<kHierarchical>);
  library.impl("two_dimensional_all_reduce_", &all_reduce_in_place<kTwoDimensional>);
  library.impl("two_dimensional_all_reduce", &all_reduce<kTwoDimensional>);
  library.impl("fp16_all_reduce_", &all_reduce_in_place<kFp16>);
  library.impl("fp16_all_reduce", &all_reduce<kFp16>);
}

TORCH_LIBRARY_IMPL(chainmail, Meta, library) {
  for (const std::string name :
       {"all_reduce", "hierarchical_all_reduce", "two_dimensional_all_reduce", "fp16_all_reduce"}) {
    library.impl((name + "_").c_str(), &all_reduce_in_place_meta);
    library.impl(name.c_str(), &all_reduce_meta);
  }
}

}  // namespace chainmail::internal
