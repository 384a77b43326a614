// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What torch's own element-wise optimizers keep of a parameter, member by member.
//
// Pure functions.

#pragma once

#include <cstdint>
#include <typeinfo>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

namespace chainmail::internal {

/// Calls visit(name, member) for each member of a parameter's state: the count of steps, which SGD
/// has none of, and tensors shaped like the parameter, which may be undefined.
template <typename Visit>
void visit_members(torch::optim::SGDParamState& state, const Visit& visit) {
  std::int64_t steps = 0;
  visit("step", steps);
  visit("momentum_buffer", state.momentum_buffer());
}

template <typename Visit>
void visit_members(torch::optim::RMSpropParamState& state, const Visit& visit) {
  visit("step", state.step());
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}

template <typename Visit>
void visit_members(torch::optim::AdagradParamState& state, const Visit& visit) {
  visit("step", state.step());
  visit("sum", state.sum());
}

template <typename State, typename Visit>
void visit_members(State& state, const Visit& visit) {  // of Adam and AdamW
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}

/// Calls visit.operator()<State>() with the state's type when `optimizer` is exactly one of these;
/// false when it is another, also one derived from them, which may do something else.
template <typename Visit>
bool with_state_type(const torch::optim::Optimizer& optimizer, const Visit& visit) {
  namespace optim = torch::optim;
  const std::type_info& type = typeid(optimizer);
  if (type == typeid(optim::SGD)) {
    visit.template operator()<optim::SGDParamState>();
  } else if (type == typeid(optim::Adam)) {
    visit.template operator()<optim::AdamParamState>();
  } else if (type == typeid(optim::AdamW)) {
    visit.template operator()<optim::AdamWParamState>();
  } else if (type == typeid(optim::RMSprop)) {
    visit.template operator()<optim::RMSpropParamState>();
  } else if (type == typeid(optim::Adagrad)) {
    visit.template operator()<optim::AdagradParamState>();
  } else {
    return false;
  }
  return true;
}

}  // namespace chainmail::internal
