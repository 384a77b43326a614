// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whatever a program holds its model by, as one type: options can be written {.model = model}, for
// modules of torch::nn and of TorchScript.
//
// A value; copies refer to the same module. Thread rules are the module's.

#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>
// Comes with torch/nn/module.h anyway, whose archives are TorchScript modules.
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>
#include <torch/ordered_dict.h>

#include <chainmail/export.h>

namespace chainmail {

/// Refers to a module, or to none. Converts from a module holder (TORCH_MODULE), a
/// torch::jit::Module, a module, and from a pointer or shared pointer to one of these.
class CHAINMAIL_API ModuleRef {
 public:
  /// Tensors by name.
  using NamedTensors = torch::OrderedDict<std::string, at::Tensor>;

  /// No module.
  ModuleRef() = default;
  /// No module.
  ModuleRef(std::nullptr_t) {}  // NOLINT: all constructors convert, that is what the type is for

  /// A module holder (TORCH_MODULE): shares ownership of its module. An empty one is no module.
  template <typename H>
  requires std::is_base_of_v<torch::detail::ModuleHolderIndicator, H> ModuleRef(
      const H& holder) {  // NOLINT
    if (!holder.is_empty()) module_ = NnModule(holder.ptr());
  }

  /// What torch::jit::load() returns; itself a handle of the module, which lives as long as this.
  ModuleRef(torch::jit::Module module) : module_(std::move(module)) {}  // NOLINT

  /// A module itself, which must live as long as whatever is given this.
  template <typename M>
  requires(std::is_base_of_v<torch::nn::Module, M> && !std::is_const_v<M>)
      ModuleRef(M& module)  // NOLINT
      : module_(NnModule(std::shared_ptr<void>(), &module)) {}

  /// A shared pointer to a module of torch::nn, whose ownership it shares, or of TorchScript.
  template <typename M>
  requires(std::is_base_of_v<torch::nn::Module, M> || std::is_base_of_v<torch::jit::Module, M>)
      ModuleRef(std::shared_ptr<M> module) {  // NOLINT
    if (module == nullptr) return;
    if constexpr (std::is_base_of_v<torch::nn::Module, M>) {
      module_ = NnModule(std::move(module));
    } else {
      module_ = torch::jit::Module(*module);
    }
  }

  /// The address of any of these; null is no module.
  template <typename M>
  ModuleRef(M* model) {  // NOLINT
    static_assert(std::is_constructible_v<ModuleRef, M&>,
                  "give a torch::nn::Module, a TORCH_MODULE holder or a torch::jit::Module, or its "
                  "address");
    if (model != nullptr) *this = ModuleRef(*model);
  }

  /// Whether it refers to a module.
  explicit operator bool() const noexcept {
    return !std::holds_alternative<std::monostate>(module_);
  }

  /// Parameters of the module and all modules in it by name, in the order of registration,
  /// undefined ones too; none where there is no module.
  [[nodiscard]] NamedTensors named_parameters() const;
  /// The same for buffers.
  [[nodiscard]] NamedTensors named_buffers() const;
  /// The values of named_parameters().
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  /// The values of named_buffers().
  [[nodiscard]] std::vector<at::Tensor> buffers() const;
  /// Whether the module is in training mode; false where there is none.
  [[nodiscard]] bool is_training() const;
  /// Drops the gradients of all parameters, or sets those that exist to zero.
  void zero_grad(bool set_to_none) const;

 private:
  using NnModule = std::shared_ptr<torch::nn::Module>;

  std::variant<std::monostate, NnModule, torch::jit::Module> module_;
};

}  // namespace chainmail
