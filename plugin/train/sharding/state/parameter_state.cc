// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/sharding/state/parameter_state.h"

#include <memory>
#include <type_traits>
#include <utility>

#include <ATen/ATen.h>
#include <chainmail/error.h>

#include "plugin/train/optimizer/state_members.h"
#include "plugin/train/sharding/slice_gather.h"

namespace chainmail::internal {

namespace {

// Stands in the map of states under the optimizer's own address. torch's archives know states by
// the addresses of whole parameters, and would leave slices out without a word.
struct SlicedMark final : torch::optim::OptimizerParamState {
  using OptimizerParamState::serialize;
  void serialize(torch::serialize::OutputArchive& /*archive*/) const override {
    throw InvalidArgument(
        "the state of this optimizer is shared among ranks (Sharding): call "
        "gather_state() of the multi-node optimizer on all ranks before saving it, or add the "
        "multi-node optimizer itself to a checkpointer");
  }
};

void* mark_key(const torch::optim::Optimizer& optimizer) {
  return const_cast<torch::optim::Optimizer*>(&optimizer);  // only the address counts
}

}  // namespace

bool has_known_state(const torch::optim::Optimizer& optimizer) {
  return with_state_type(optimizer, []<typename State>() {});
}

std::optional<ParameterState> read_state(torch::optim::Optimizer& optimizer,
                                         const at::Tensor& key) {
  const auto found = optimizer.state().find(key.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return std::nullopt;
  ParameterState result;
  with_state_type(optimizer, [&]<typename State>() {
    visit_members(static_cast<State&>(*found->second),
                  [&]<typename Member>(const char* /*name*/, Member& member) {
                    if constexpr (std::is_same_v<Member, at::Tensor>) {
                      result.tensors.push_back(member);
                    } else {
                      result.step = member;
                    }
                  });
  });
  return result;
}

void write_state(torch::optim::Optimizer& optimizer, const at::Tensor& key, ParameterState state) {
  with_state_type(optimizer, [&]<typename State>() {
    auto made = std::make_unique<State>();
    auto next = state.tensors.begin();
    visit_members(*made, [&]<typename Member>(const char* /*name*/, Member& member) {
      if constexpr (std::is_same_v<Member, at::Tensor>) {
        member = std::move(*next++);
      } else {
        member = state.step;
      }
    });
    optimizer.state()[key.unsafeGetTensorImpl()] = std::move(made);
  });
}

at::Tensor part_of_state(const at::Tensor& whole, const at::Tensor& parameter, std::size_t begin,
                         std::size_t end) {
  const at::Tensor like = whole.strides() == parameter.strides()
                              ? whole
                              : at::empty_like(parameter, whole.options()).copy_(whole);
  return row_of(like, begin, end).clone();
}

void mark_sliced(torch::optim::Optimizer& optimizer) {
  auto& mark = optimizer.state()[mark_key(optimizer)];
  if (!mark) mark = std::make_unique<SlicedMark>();
}

void unmark_sliced(torch::optim::Optimizer& optimizer) {
  optimizer.state().erase(mark_key(optimizer));
}

bool is_marked_sliced(const torch::optim::Optimizer& optimizer) {
  return optimizer.state().find(mark_key(optimizer)) != optimizer.state().end();
}

}  // namespace chainmail::internal
