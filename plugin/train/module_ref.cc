// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/train/module_ref.h>

namespace chainmail {

namespace {

template <typename List>
ModuleRef::NamedTensors named(const List& list) {
  ModuleRef::NamedTensors tensors;
  for (const auto& item : list) tensors.insert(item.name, item.value);
  return tensors;
}

}  // namespace

ModuleRef::NamedTensors ModuleRef::named_parameters() const {
  if (const auto* const script = std::get_if<torch::jit::Module>(&module_)) {
    return named(script->named_parameters());
  }
  const auto* const module = std::get_if<NnModule>(&module_);
  return module == nullptr ? NamedTensors() : (*module)->named_parameters();
}

ModuleRef::NamedTensors ModuleRef::named_buffers() const {
  if (const auto* const script = std::get_if<torch::jit::Module>(&module_)) {
    return named(script->named_buffers());
  }
  const auto* const module = std::get_if<NnModule>(&module_);
  return module == nullptr ? NamedTensors() : (*module)->named_buffers();
}

std::vector<at::Tensor> ModuleRef::parameters() const { return named_parameters().values(); }

std::vector<at::Tensor> ModuleRef::buffers() const { return named_buffers().values(); }

bool ModuleRef::is_training() const {
  if (const auto* const script = std::get_if<torch::jit::Module>(&module_)) {
    return script->is_training();
  }
  const auto* const module = std::get_if<NnModule>(&module_);
  return module != nullptr && (*module)->is_training();
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
