// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whatever a program holds its model by, as one type: lets options be written {.model = &model}.
//
// A value; copies refer to the same module.

#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

namespace chainmail {

class ModuleRef {
 public:
  ModuleRef() = default;
  ModuleRef(std::nullptr_t) {}  // NOLINT: all constructors convert, that is what the type is for

  /// A shared pointer to a module; shares ownership.
  template <typename M, typename = std::enable_if_t<std::is_base_of_v<torch::nn::Module, M>>>
  ModuleRef(std::shared_ptr<M> module) : module_(std::move(module)) {}  // NOLINT

  /// The address of a module holder (TORCH_MODULE), or of a module, which then must live as long
  /// as whoever is given this.
  template <typename M>
  ModuleRef(M* model) {  // NOLINT
    if (model == nullptr) {
      return;
    }
    if constexpr (std::is_base_of_v<torch::detail::ModuleHolderIndicator, M>) {
      module_ = model->ptr();
    } else {
      static_assert(std::is_base_of_v<torch::nn::Module, M>,
                    "give the address of a torch::nn::Module or of a TORCH_MODULE holder");
      module_ = std::shared_ptr<torch::nn::Module>(std::shared_ptr<void>(), model);
    }
  }

  explicit operator bool() const noexcept { return module_ != nullptr; }
  torch::nn::Module* get() const noexcept { return module_.get(); }
  torch::nn::Module* operator->() const noexcept { return module_.get(); }

 private:
  std::shared_ptr<torch::nn::Module> module_;
};

}  // namespace chainmail
