// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/gradients/gradient_hooks.h"

#include <memory>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace chainmail::internal {

namespace {

class ReadyHook final : public torch::autograd::PostAccumulateGradHook {
 public:
  ReadyHook(std::size_t index, std::shared_ptr<const std::function<void(std::size_t)>> ready,
            std::shared_ptr<const GradientTaker> taker)
      : index_(index), ready_(std::move(ready)), taker_(std::move(taker)) {}

  void operator()(const at::Tensor& /*parameter*/) override {
    const at::NoGradGuard no_grad;  // backward(create_graph) runs its hooks with gradients on
    (*ready_)(index_);
  }
  const GradientTaker* taker() const noexcept { return taker_.get(); }

 private:
  std::size_t index_;
  std::shared_ptr<const std::function<void(std::size_t)>> ready_;
  std::shared_ptr<const GradientTaker> taker_;
};

}  // namespace

const GradientTaker* taker_of(const at::Tensor& parameter) {
  if (torch::autograd::impl::get_autograd_meta(parameter) == nullptr) return nullptr;
  const auto* const hook =
      dynamic_cast<const ReadyHook*>(torch::autograd::impl::post_acc_grad_hooks(parameter).get());
  return hook == nullptr ? nullptr : hook->taker();
}

GradientHooks::GradientHooks(const std::vector<NamedTensor>& parameters,
                             std::function<void(std::size_t)> ready,
                             std::shared_ptr<const GradientTaker> taker) {
  const auto shared = std::make_shared<const std::function<void(std::size_t)>>(std::move(ready));
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto hook = std::make_unique<ReadyHook>(i, shared, taker);
    installed_.push_back({parameters[i].tensor, hook.get()});
    torch::autograd::impl::set_post_acc_grad_hooks(parameters[i].tensor, std::move(hook));
  }
}

GradientHooks::~GradientHooks() {
  for (const Installed& one : installed_) {
    if (torch::autograd::impl::post_acc_grad_hooks(one.parameter).get() == one.hook) {
      torch::autograd::impl::set_post_acc_grad_hooks(one.parameter, nullptr);
    }
  }
}

void at_end_of_backward(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

}  // namespace chainmail::internal
