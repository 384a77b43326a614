// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/train/module_ref.h>

namespace chainmail {

namespace {

// What `ask` says of the module, whichever kind it is; nothing where there is none.
template <typename Module, typename Ask>
auto ask_module(const Module& module, const Ask& ask) {
  using Answer = decltype(ask(std::get<torch::jit::Module>(module)));
  if (const auto* const script = std::get_if<torch::jit::Module>(&module)) return ask(*script);
  const auto* const other = std::get_if<std::shared_ptr<torch::nn::Module>>(&module);
  return other == nullptr ? Answer() : ask(**other);
}

ModuleRef::NamedTensors named(ModuleRef::NamedTensors tensors) { return tensors; }

template <typename List>
ModuleRef::NamedTensors named(const List& list) {
  ModuleRef::NamedTensors tensors;
  for (const auto& item : list) tensors.insert(item.name, item.value);
  return tensors;
}

}  // namespace

ModuleRef::NamedTensors ModuleRef::named_parameters() const {
  return ask_module(module_, [](const auto& module) { return named(module.named_parameters()); });
}

ModuleRef::NamedTensors ModuleRef::named_buffers() const {
  return ask_module(module_, [](const auto& module) { return named(module.named_buffers()); });
}

std::vector<at::Tensor> ModuleRef::parameters() const { return named_parameters().values(); }

std::vector<at::Tensor> ModuleRef::buffers() const { return named_buffers().values(); }

bool ModuleRef::is_training() const {
  return ask_module(module_, [](const auto& module) { return module.is_training(); });
}

void ModuleRef::zero_grad(bool set_to_none) const {
  if (const auto* const module = std::get_if<NnModule>(&module_)) {
    (*module)->zero_grad(set_to_none);
    return;
  }
  for (const at::Tensor& parameter : parameters()) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) continue;
    gradient = set_to_none ? at::Tensor() : gradient.detach().zero_();
  }
}

}  // namespace chainmail
