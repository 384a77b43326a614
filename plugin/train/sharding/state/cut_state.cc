// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What OptimizerSlices does with the optimizer's state: cuts it, puts it together, and gives it to
// checkpoints.

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>

#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/optimizer/optimizer_state.h"
#include "plugin/train/sharding/optimizer_slices.h"
#include "plugin/train/sharding/slice_gather.h"
#include "plugin/train/sharding/state/parameter_state.h"

namespace chainmail::internal {

// Then a mark is there, and nothing has come that is not of a slice.
bool OptimizerSlices::is_all_cut() const {
  return is_sliced_ && has_known_state_ && is_marked_sliced(*optimizer_) &&
         optimizer_->state().size() == states_;
}

void OptimizerSlices::cut_state(const GradientExchange& exchange) {
  if (is_all_cut()) return;
  if (kind_ == SliceKind::kWhole) {
    std::unordered_set<const c10::TensorImpl*> own;
    for (const Part& part : parts_) own.insert(part.parameter.unsafeGetTensorImpl());
    for (const NamedTensor& parameter : exchange.parameters()) {
      c10::TensorImpl* const key = parameter.tensor.unsafeGetTensorImpl();
      if (!own.contains(key)) optimizer_->state().erase(key);
    }
    is_sliced_ = true;
    mark_sliced(*optimizer_);
    return;
  }
  if (!has_known_state_) refuse_whole_state(exchange);
  for (const Part& part : parts_) {
    if (!part.has_elements()) continue;
    auto state = read_state(*optimizer_, part.parameter);
    if (!state) continue;
    for (at::Tensor& tensor : state->tensors) {
      if (tensor.defined()) tensor = part_of_state(tensor, part.parameter, part.begin, part.end);
    }
    write_state(*optimizer_, part.view, std::move(*state));
  }
  for (const NamedTensor& parameter : exchange.parameters()) {
    if (parameter.tensor.numel() == 0) continue;
    optimizer_->state().erase(parameter.tensor.unsafeGetTensorImpl());
  }
  is_sliced_ = true;
  mark_sliced(*optimizer_);
  states_ = optimizer_->state().size();
}

// By all parameters, whoever owns them, so that all ranks throw.
void OptimizerSlices::refuse_whole_state(const GradientExchange& exchange) const {
  const auto& states = optimizer_->state();
  for (const NamedTensor& parameter : exchange.parameters()) {
    if (parameter.tensor.numel() == 0 ||
        states.find(parameter.tensor.unsafeGetTensorImpl()) == states.end()) {
      continue;
    }
    throw InvalidArgument(
        "an optimizer of a type of your own has state of whole parameters, of '" + parameter.name +
        "' for one, which a sharded optimizer cannot cut: give it to the multi-node optimizer "
        "before its first step, or without .is_elementwise");
  }
}

void OptimizerSlices::gather_state(const GradientExchange& exchange) {
  const at::NoGradGuard no_grad;
  std::vector<std::pair<at::Tensor, at::Tensor>> changed;
  if (has_parts_) changed = keep_order(exchange);
  follow_storage();
  if (has_known_state_) {
    gather_known_state(exchange);
  } else if (kind_ == SliceKind::kWhole) {
    gather_unknown_state();
  } else if (is_sliced_) {
    throw InvalidArgument(
        "the slices of an optimizer of a type of your own (.is_elementwise) cannot be put together "
        "again, for a checkpoint or for a model that has changed: leave .is_elementwise out, so "
        "that ranks own whole parameters");
  }
  unmark_sliced(*optimizer_);
  is_sliced_ = false;
  // The next slices, after synchronize(), may be cut in the program's order.
  for (const auto& [parameter, data] : changed) parameter.set_data(data);
}

void OptimizerSlices::gather_known_state(const GradientExchange& exchange) {
  StateGather gather(*communicator_, exchange);
  for (const Part& part : parts_) {
    if (!part.has_elements()) continue;
    if (auto state = read_state(*optimizer_, part.view)) {
      gather.add({part.bucket, part.index, part.begin, part.end}, std::move(*state));
      optimizer_->state().erase(part.view.unsafeGetTensorImpl());
    }
  }
  gather.run([this](const at::Tensor& parameter, ParameterState state) {
    write_state(*optimizer_, parameter, std::move(state));
  });
}

// By torch's archives, one for each slice. Each brings the state of its owner's parameters.
void OptimizerSlices::gather_unknown_state() {
  unmark_sliced(*optimizer_);
  const bool gives = is_sliced_ && !is_copy();
  const auto archives =
      communicator_->allgather_obj(gives ? save_optimizer(*optimizer_) : std::string());
  for (int rank = 0; rank < communicator_->size(); ++rank) {
    const std::string& archive = archives[static_cast<std::size_t>(rank)];
    if (rank != communicator_->rank() && !archive.empty()) add_to_optimizer(archive, *optimizer_);
  }
}

std::vector<OptimizerSlices::OwnState> OptimizerSlices::own_parts(
    const GradientExchange& exchange) {
  const at::NoGradGuard no_grad;
  prepare(exchange);
  std::vector<OwnState> own;
  for (const Part& part : parts_) {
    if (part.has_elements()) own.push_back({part.parameter, part.begin, part.end});
  }
  return own;
}

std::vector<OptimizerSlices::OwnState> OptimizerSlices::own_state(
    const GradientExchange& exchange) {
  const at::NoGradGuard no_grad;
  std::vector<OwnState> own = own_parts(exchange);
  auto next = own.begin();
  for (const Part& part : parts_) {
    if (!part.has_elements()) continue;
    std::optional<ParameterState>& state = (next++)->state;
    state = read_state(*optimizer_, part.view);
    if (state) continue;
    state = read_state(*optimizer_, part.parameter);
    if (!state) continue;
    for (at::Tensor& tensor : state->tensors) {
      if (tensor.defined()) tensor = part_of_state(tensor, part.parameter, part.begin, part.end);
    }
  }
  return own;
}

void OptimizerSlices::take_state(const GradientExchange& exchange, std::vector<OwnState> states) {
  const at::NoGradGuard no_grad;
  prepare(exchange);
  follow_storage();
  for (OwnState& own : states) {
    const auto part = std::ranges::find_if(
        parts_, [&](const Part& other) { return other.parameter.is_same(own.parameter); });
    if (part != parts_.end() && own.state) {
      write_state(*optimizer_, part->view, std::move(*own.state));
    }
  }
  cut_state(exchange);
}

bool OptimizerSlices::is_copy() const {
  const ops::Topology& topology = communicator_->impl().group->topology();
  return !is_over_nodes_ && topology.node_of(communicator_->rank()) != 0;
}

}  // namespace chainmail::internal
