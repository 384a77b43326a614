// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/items/optimizer/state_in_parts.h"

#include <algorithm>
#include <memory>
#include <type_traits>
#include <unordered_set>
#include <utility>

#include <ATen/ATen.h>
#include <c10/util/StringUtil.h>

#include "plugin/checkpoint/items/state_entries.h"
#include "plugin/train/optimizer/state_members.h"
#include "plugin/train/sharding/state/parameter_state.h"

namespace chainmail::internal {

namespace {

constexpr const char* kStep = "step";

// Of a ParameterState's tensors, in their order.
std::vector<std::string> tensor_names(const torch::optim::Optimizer& optimizer) {
  std::vector<std::string> names;
  with_state_type(optimizer, [&]<typename State>() {
    State state;
    visit_members(state, [&]<typename Member>(const char* name, const Member& /*member*/) {
      if constexpr (std::is_same_v<Member, at::Tensor>) names.emplace_back(name);
    });
  });
  return names;
}

std::int64_t length(std::uint64_t begin, std::uint64_t end) {
  return static_cast<std::int64_t>(end - begin);
}

// `tensor` has the elements from `own.begin` on.
void add_ranges(const std::string& name, const OwnState& own, const at::Tensor& tensor,
                CheckpointState& entries) {
  const std::size_t step = kMaxRangeBytes / static_cast<std::size_t>(tensor.element_size());
  for (std::size_t begin = own.begin; begin < own.end; begin += step) {
    const std::size_t end = std::min(own.end, begin + step);
    entries.set_tensor(range_name({name, begin, end}),
                       tensor.narrow(0, length(own.begin, begin), length(begin, end)));
  }
}

std::span<std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

}  // namespace

RankParts save_state_in_parts(torch::optim::Optimizer& optimizer,
                              const std::vector<OwnState>& own) {
  const std::vector<std::string> names = tensor_names(optimizer);
  RankParts parts;
  for_each_parameter(optimizer, [&](const std::string& prefix, const at::Tensor& parameter) {
    for (const OwnState& part : own) {
      if (!part.parameter.is_same(parameter) || !part.state) continue;
      const auto elements = static_cast<std::uint64_t>(parameter.numel());
      parts.entries.set_integer(range_name({prefix + kStep, part.begin, part.end}),
                                part.state->step);
      parts.elements[prefix + kStep] = elements;
      for (std::size_t t = 0; t < names.size(); ++t) {
        const at::Tensor& tensor = part.state->tensors.at(t);
        if (!tensor.defined()) continue;
        add_ranges(prefix + names[t], part, tensor, parts.entries);
        parts.elements[prefix + names[t]] = elements;
      }
    }
  });
  return parts;
}

StateInParts::StateInParts(torch::optim::Optimizer& optimizer)
    : optimizer_(optimizer), names_(tensor_names(optimizer)) {}

void StateInParts::expect(const CheckpointState& saved) {
  layouts_.clear();
  for_each_parameter(optimizer_, [&](const std::string& prefix, const at::Tensor& parameter) {
    auto layout = saved_layout(saved, prefix);
    if (!layout) return;
    if (parameter.sizes() != c10::IntArrayRef(layout->sizes)) {
      throw CheckpointError("'" + prefix + "' of the checkpoint's optimizer has shape " +
                            c10::str(c10::IntArrayRef(layout->sizes)) + ", of the program's " +
                            c10::str(parameter.sizes()));
    }
    layouts_.emplace(prefix, std::move(*layout));
  });
}

// Nothing is left out without a word.
void StateInParts::expect_known(const PartTensors& saved) const {
  std::unordered_set<std::string> known;
  for_each_parameter(optimizer_, [&](const std::string& prefix, const at::Tensor& /*parameter*/) {
    if (saved.count(prefix + kStep) == 0) return;
    known.insert(prefix + kStep);
    for (const std::string& name : names_) known.insert(prefix + name);
  });
  for (const auto& [name, tensor] : saved) {
    if (known.contains(name)) continue;
    throw CheckpointError("the checkpoint has parts of '" + name +
                          "', which is no state of the program's " +
                          describe_optimizer(optimizer_) +
                          ", or has no count of steps beside it: give the optimizer the groups and "
                          "parameters that it had when it was saved, in that order");
  }
}

WishedState StateInParts::wish(
    const PartTensors& saved, const std::vector<OwnState>& own,
    const std::function<bool(const at::Tensor& parameter)>& is_in_slices) const {
  expect_known(saved);
  WishedState wished(optimizer_);
  for_each_parameter(optimizer_, [&](const std::string& prefix, const at::Tensor& parameter) {
    if (saved.count(prefix + kStep) == 0) return;
    const auto layout = layouts_.find(prefix);
    if (layout == layouts_.end()) throw CheckpointError("the layout of " + prefix + " is missing");
    Pending pending{.parameter = parameter, .end = static_cast<std::size_t>(parameter.numel())};
    if (is_in_slices(parameter)) {
      const auto part = std::ranges::find_if(
          own, [&](const OwnState& one) { return one.parameter.is_same(parameter); });
      if (part == own.end()) return;
      pending.is_whole = false;
      pending.begin = part->begin;
      pending.end = part->end;
      pending.is_read_whole = parameter.strides() != c10::IntArrayRef(layout->second.strides);
    }
    wish_state(prefix, saved, std::move(pending), wished);
  });
  return wished;
}

void StateInParts::wish_state(const std::string& prefix, const PartTensors& saved, Pending pending,
                              WishedState& wished) const {
  const auto elements = static_cast<std::uint64_t>(pending.parameter.numel());
  const auto want = [&](const std::string& name, std::uint64_t begin, std::uint64_t end,
                        const at::Tensor& into) {
    if (saved.at(name).elements != elements) {
      throw CheckpointError("'" + name + "' has " + std::to_string(saved.at(name).elements) +
                            " elements in the checkpoint, its parameter " +
                            std::to_string(elements));
    }
    wished.wishes_.push_back({{name, begin, end}, bytes_of(into)});
  };
  const PartTensor& step = saved.at(prefix + kStep);
  if (!step.is_shared || step.type != EntryType::kInt64) {
    throw CheckpointError("'" + prefix + kStep + "' in the checkpoint is no integer");
  }
  pending.step = at::zeros({}, c10::kLong);
  want(prefix + kStep, 0, elements, pending.step);
  const MemoryLayout& layout = layouts_.at(prefix);
  for (const std::string& name : names_) {
    at::Tensor& tensor = pending.state.tensors.emplace_back();
    const auto found = saved.find(prefix + name);
    if (found == saved.end()) continue;
    if (found->second.is_shared) {
      throw CheckpointError("'" + found->first + "' in the checkpoint is no tensor");
    }
    const at::TensorOptions options(scalar_type_of(found->second.type));
    if (pending.is_read_whole) {
      tensor = at::empty_strided(layout.sizes, layout.strides, options);
      want(prefix + name, 0, elements, tensor);
    } else {
      tensor = at::empty({length(pending.begin, pending.end)}, options);
      want(prefix + name, pending.begin, pending.end, tensor);
    }
  }
  wished.pending_.push_back(std::move(pending));
}

std::vector<OwnState> WishedState::take() {
  const at::NoGradGuard no_grad;
  std::vector<OwnState> slices;
  for (Pending& pending : pending_) {
    pending.state.step = pending.step.item<std::int64_t>();
    for (at::Tensor& tensor : pending.state.tensors) {
      if (!tensor.defined() || !pending.is_read_whole) continue;
      const bool lies_alike = tensor.strides() == pending.parameter.strides() &&
                              tensor.device() == pending.parameter.device();
      if (!pending.is_whole) {
        tensor = part_of_state(tensor, pending.parameter, pending.begin, pending.end);
      } else if (!lies_alike) {
        tensor = laid_out_like(pending.parameter, tensor);
      }
    }
    if (pending.is_whole) {
      write_state(optimizer_, pending.parameter, std::move(pending.state));
    } else {
      slices.push_back({pending.parameter, pending.begin, pending.end, std::move(pending.state)});
    }
  }
  pending_.clear();
  return slices;
}

}  // namespace chainmail::internal
