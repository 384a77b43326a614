// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Modules as functions from lists of tensors to lists of tensors, for models that are put together
// at run time. C++ modules have a forward of their own type each.
//
// Values; thread rules are the module's.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <chainmail/error.h>
#include <chainmail/export.h>

namespace chainmail::internal {

/// A module and its forward.
struct Component {
  std::shared_ptr<torch::nn::Module> module;
  std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)> forward;
};

inline constexpr std::size_t kMaxComponentInputs = 8;

/// Throws InvalidArgument: `module` has no forward of so many tensors.
[[noreturn]] CHAINMAIL_API void refuse_inputs(const torch::nn::Module& module, std::size_t inputs);

inline void append_tensors(std::vector<at::Tensor>& list, const at::Tensor& tensor) {
  list.push_back(tensor);
}
inline void append_tensors(std::vector<at::Tensor>& list, const std::vector<at::Tensor>& tensors) {
  list.insert(list.end(), tensors.begin(), tensors.end());
}
/// Of tuples of all these, in order.
template <typename... T>
void append_tensors(std::vector<at::Tensor>& list, const std::tuple<T...>& tuple) {
  std::apply([&](const T&... elements) { (append_tensors(list, elements), ...); }, tuple);
}

template <typename M, std::size_t... kIndex>
constexpr bool takes_tensors(std::index_sequence<kIndex...> /*indices*/) {
  return requires(M & module, const at::Tensor& x) {
    module.forward((static_cast<void>(kIndex), x)...);
  };
}

template <typename M, std::size_t... kIndex>
std::vector<at::Tensor> call_forward(M& module, const std::vector<at::Tensor>& inputs,
                                     std::index_sequence<kIndex...> /*indices*/) {
  std::vector<at::Tensor> outputs;
  append_tensors(outputs, module.forward(inputs[kIndex]...));
  return outputs;
}

/// Calls the forward that takes so many tensors, or else the one that takes a list.
template <typename M, std::size_t kCount = 0>
std::vector<at::Tensor> forward_list(M& module, const std::vector<at::Tensor>& inputs) {
  using Indices = std::make_index_sequence<kCount>;
  if constexpr (kCount < kMaxComponentInputs) {
    if (inputs.size() > kCount) return forward_list<M, kCount + 1>(module, inputs);
  }
  if constexpr (takes_tensors<M>(Indices())) {
    if (inputs.size() == kCount) return call_forward(module, inputs, Indices());
  }
  if constexpr (requires { module.forward(inputs); } && !takes_tensors<M>(Indices())) {
    std::vector<at::Tensor> outputs;
    append_tensors(outputs, module.forward(inputs));
    return outputs;
  }
  refuse_inputs(module, inputs.size());
}

template <typename Impl>
requires std::is_base_of_v<torch::nn::Module, Impl> Component
make_component(std::shared_ptr<Impl> module) {
  if (!module) throw InvalidArgument("a link of a list, or a stage of a Pipeline, needs a module");
  return {module, [module](const std::vector<at::Tensor>& inputs) {
            return forward_list(*module, inputs);
          }};
}

/// Of a module holder (TORCH_MODULE).
template <typename Holder>
requires std::is_base_of_v<torch::detail::ModuleHolderIndicator, Holder> Component
make_component(const Holder& holder) {
  using Impl = typename Holder::ContainedType;
  return make_component(holder.is_empty() ? std::shared_ptr<Impl>() : holder.ptr());
}

}  // namespace chainmail::internal
