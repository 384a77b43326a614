// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/optimizer/fused_step.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <typeinfo>
#include <vector>

#include <ATen/ATen.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

namespace chainmail::internal {

namespace {

namespace optim = torch::optim;
using Tensors = std::vector<at::Tensor>;

bool is_laid_out_like(const at::Tensor& tensor, const at::Tensor& parameter) {
  return is_fusable(tensor) && tensor.scalar_type() == parameter.scalar_type() &&
         tensor.sizes() == parameter.sizes() && tensor.strides() == parameter.strides();
}

template <typename State>
State* find_state(optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  return found == optimizer.state().end() ? nullptr : static_cast<State*>(found->second.get());
}

// Options may have changed since the state was made; what then follows is the optimizer's business.
bool state_fits(const optim::SGDParamState& state, const at::Tensor& parameter,
                const optim::SGDOptions& options) {
  return options.momentum() != 0 && (!state.momentum_buffer().defined() ||
                                     is_laid_out_like(state.momentum_buffer(), parameter));
}

template <typename State, typename Options>
bool state_fits(const State& state, const at::Tensor& parameter, const Options& options) {
  return is_laid_out_like(state.exp_avg(), parameter) &&
         is_laid_out_like(state.exp_avg_sq(), parameter) &&
         options.amsgrad() == state.max_exp_avg_sq().defined() &&
         (!options.amsgrad() || is_laid_out_like(state.max_exp_avg_sq(), parameter));
}

template <typename State, typename Options>
bool fits(optim::Optimizer& optimizer) {
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    for (const at::Tensor& parameter : group.params()) {
      const at::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      const State* const state = find_state<State>(optimizer, parameter);
      if (!is_fusable(parameter) || !is_laid_out_like(gradient, parameter) ||
          (state != nullptr && !state_fits(*state, parameter, options))) {
        return false;
      }
    }
  }
  return true;
}

// Parameters that one kernel call can take: equal dtype and number of steps.
struct Batch {
  c10::ScalarType dtype;
  std::int64_t step;
  Tensors parameters, gradients, first, second, greatest;
};

Batch& batch_for(std::vector<Batch>& batches, c10::ScalarType dtype, std::int64_t step) {
  const auto found = std::find_if(batches.begin(), batches.end(), [&](const Batch& batch) {
    return batch.dtype == dtype && batch.step == step;
  });
  return found != batches.end() ? *found
                                : batches.emplace_back(Batch{dtype, step, {}, {}, {}, {}, {}});
}

void run(Batch& batch, const optim::SGDOptions& options) {
  at::_fused_sgd_(batch.parameters, batch.gradients, batch.first, options.weight_decay(),
                  options.momentum(), options.lr(), options.dampening(), options.nesterov(),
                  /*maximize=*/false, /*is_first_step=*/batch.step == 0);
}

template <typename Options, typename Kernel>
void run_adam(Batch& batch, const Options& options, const Kernel& kernel) {
  const Tensors steps(batch.parameters.size(), at::full({}, static_cast<double>(batch.step),
                                                        c10::TensorOptions(c10::kFloat)));
  const auto [beta1, beta2] = options.betas();
  kernel(batch.parameters, batch.gradients, batch.first, batch.second, batch.greatest, steps,
         options.lr(), beta1, beta2, options.weight_decay(), options.eps(), options.amsgrad(),
         /*maximize=*/false, std::optional<at::Tensor>{}, std::optional<at::Tensor>{});
}

void run(Batch& batch, const optim::AdamOptions& options) {
  run_adam(batch, options, [](auto&&... arguments) { at::_fused_adam_(arguments...); });
}

void run(Batch& batch, const optim::AdamWOptions& options) {
  run_adam(batch, options, [](auto&&... arguments) { at::_fused_adamw_(arguments...); });
}

void add(std::vector<Batch>& batches, const at::Tensor& parameter, optim::SGDParamState* state) {
  const bool has_buffer = state != nullptr && state->momentum_buffer().defined();
  Batch& batch = batch_for(batches, parameter.scalar_type(), has_buffer ? 1 : 0);
  batch.parameters.push_back(parameter);
  batch.gradients.push_back(parameter.grad());
  if (state != nullptr) {
    if (!has_buffer) state->momentum_buffer(at::empty_like(parameter));
    batch.first.push_back(state->momentum_buffer());
  }
}

template <typename State>
void add(std::vector<Batch>& batches, const at::Tensor& parameter, State* state) {
  state->step(state->step() + 1);
  Batch& batch = batch_for(batches, parameter.scalar_type(), state->step());
  batch.parameters.push_back(parameter);
  batch.gradients.push_back(parameter.grad());
  batch.first.push_back(state->exp_avg());
  batch.second.push_back(state->exp_avg_sq());
  if (state->max_exp_avg_sq().defined()) batch.greatest.push_back(state->max_exp_avg_sq());
}

// As the optimizers themselves do in their first step.
template <typename State, typename Options>
std::unique_ptr<State> new_state(const at::Tensor& parameter, const Options& options) {
  if constexpr (std::is_same_v<State, optim::SGDParamState>) {
    return options.momentum() == 0 ? nullptr : std::make_unique<State>();
  } else {
    auto state = std::make_unique<State>();
    state->step(0);
    state->exp_avg(at::zeros_like(parameter));
    state->exp_avg_sq(at::zeros_like(parameter));
    if (options.amsgrad()) state->max_exp_avg_sq(at::zeros_like(parameter));
    return state;
  }
}

template <typename State, typename Options>
bool step_all(optim::Optimizer& optimizer) {
  if (!fits<State, Options>(optimizer)) return false;
  for (optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    std::vector<Batch> batches;
    for (const at::Tensor& parameter : group.params()) {
      if (!parameter.grad().defined()) continue;
      State* state = find_state<State>(optimizer, parameter);
      if (state == nullptr) {
        auto made = new_state<State>(parameter, options);
        state = made.get();
        if (made) optimizer.state()[parameter.unsafeGetTensorImpl()] = std::move(made);
      }
      add(batches, parameter, state);
    }
    for (Batch& batch : batches) run(batch, options);
  }
  return true;
}

}  // namespace

// The kernels walk plain arrays and take one dtype per call.
bool is_fusable(const at::Tensor& parameter) {
  return parameter.layout() == c10::kStrided && parameter.device().is_cpu() &&
         (parameter.scalar_type() == c10::kFloat || parameter.scalar_type() == c10::kDouble) &&
         parameter.is_non_overlapping_and_dense();
}

bool fused_step(torch::optim::Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  // A class derived from these may do something else.
  const std::type_info& type = typeid(optimizer);
  if (type == typeid(optim::SGD)) {
    return step_all<optim::SGDParamState, optim::SGDOptions>(optimizer);
  }
  if (type == typeid(optim::Adam)) {
    return step_all<optim::AdamParamState, optim::AdamOptions>(optimizer);
  }
  if (type == typeid(optim::AdamW)) {
    return step_all<optim::AdamWParamState, optim::AdamWOptions>(optimizer);
  }
  return false;
}

}  // namespace chainmail::internal
