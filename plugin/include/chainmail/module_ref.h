// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whatever a program holds its model by, as one type: lets options be written {.model = &model},
// for modules of torch::nn and of TorchScript.
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

class CHAINMAIL_API ModuleRef {
 public:
  using NamedTensors = torch::OrderedDict<std::string, at::Tensor>;

  ModuleRef() = default;
  ModuleRef(std::nullptr_t) {}  // NOLINT: all constructors convert, that is what the type is for

  /// A shared pointer to a module of torch::nn, whose ownership it shares, or of TorchScript.
  template <typename M, typename = std::enable_if_t<std::is_base_of_v<torch::nn::Module, M> ||
                                                    std::is_base_of_v<torch::jit::Module, M>>>
  ModuleRef(std::shared_ptr<M> module) {  // NOLINT
    if constexpr (std::is_base_of_v<torch::nn::Module, M>) {
      hold(std::move(module));
    } else if (module != nullptr) {
      module_ = torch::jit::Module(*module);
    }
  }

  /// What torch::jit::load() returns; itself a handle of the module, which lives as long as this.
  ModuleRef(torch::jit::Module module) : module_(std::move(module)) {}  // NOLINT

  /// The address of a module holder (TORCH_MODULE) or of a torch::jit::Module; both are handles. Or
  /// of a module itself, which then must live as long as whoever is given this.
  template <typename M>
  ModuleRef(M* model) {  // NOLINT
    if (model == nullptr) {
      return;
    }
    if constexpr (std::is_base_of_v<torch::detail::ModuleHolderIndicator, M>) {
      hold(model->ptr());
    } else if constexpr (std::is_base_of_v<torch::jit::Module, M>) {
      module_ = torch::jit::Module(*model);
    } else {
      static_assert(std::is_base_of_v<torch::nn::Module, M>,
                    "give the address of a torch::nn::Module, of a TORCH_MODULE holder or of a "
                    "torch::jit::Module");
      hold(std::shared_ptr<torch::nn::Module>(std::shared_ptr<void>(), model));
    }
  }

  explicit operator bool() const noexcept {
    return !std::holds_alternative<std::monostate>(module_);
  }

  // Of the module and all modules in it; nothing where there is none.

  /// By name, in the order of registration; undefined ones too.
  [[nodiscard]] NamedTensors named_parameters() const;
  [[nodiscard]] NamedTensors named_buffers() const;
  [[nodiscard]] std::vector<at::Tensor> parameters() const;
  [[nodiscard]] std::vector<at::Tensor> buffers() const;
  [[nodiscard]] bool is_training() const;
  /// Drops the gradients, or sets those that there are to zero.
  void zero_grad(bool set_to_none) const;

 private:
  using NnModule = std::shared_ptr<torch::nn::Module>;

  void hold(NnModule module) {
    if (module != nullptr) {
      module_ = std::move(module);
    }
  }

  std::variant<std::monostate, NnModule, torch::jit::Module> module_;
};

}  // namespace chainmail
