// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/items/items.h"

#include <memory>
#include <mutex>
#include <sstream>
#include <utility>

#include <ATen/ATen.h>

#include "plugin/checkpoint/items/optimizer/optimizer_parts.h"
#include "plugin/checkpoint/items/optimizer/state_in_parts.h"
#include "plugin/checkpoint/store/format.h"
#include "plugin/train/sharding/slice_memory.h"

namespace chainmail::internal {

namespace {

using NamedTensors = ModuleRef::NamedTensors;

CheckpointState state_of(const NamedTensors& tensors) {
  CheckpointState state;
  for (const auto& item : tensors) {
    if (item.value().defined()) state.set_tensor(item.key(), item.value().detach());
  }
  return state;
}

// Which slice a rank has depends on the shape of the job, and entries do not say.
void refuse(const std::string& name, const at::Tensor& tensor) {
  refuse_slice(name, tensor, "a checkpoint",
               "save units one by one, with gather(), and what is yours of the optimizer by torch");
}

std::string describe(const at::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes() << ' ' << c10::toString(tensor.scalar_type());
  return text.str();
}

// All are compared before the first one changes.
void load_tensors(const CheckpointState& state, NamedTensors tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& item : tensors) {
    if (!item.value().defined()) continue;
    const at::Tensor saved = state.tensor(item.key());
    if (saved.sizes() != item.value().sizes() ||
        saved.scalar_type() != item.value().scalar_type()) {
      throw CheckpointError("'" + item.key() + "' is " + describe(saved) +
                            " in the checkpoint and " + describe(item.value()) + " in the program");
    }
  }
  for (auto& item : tensors) {
    if (item.value().defined()) item.value().copy_(state.tensor(item.key()));
  }
}

}  // namespace

CheckpointItem parameters_item(const std::string& name, const ModuleRef& model) {
  for (const auto& item : model.named_parameters()) refuse(item.key(), item.value());
  return {.name = name,
          .scope = ItemScope::kReplicated,
          .save = [model] { return state_of(model.named_parameters()); },
          .load =
              [model](const SavedStates& saved) {
                load_tensors(saved.own(), model.named_parameters());
              }};
}

CheckpointItem buffers_item(const std::string& name, const ModuleRef& model) {
  return {
      .name = name,
      .scope = ItemScope::kCompared,
      .save = [model] { return state_of(model.named_buffers()); },
      .load =
          [model](const SavedStates& saved) { load_tensors(saved.own(), model.named_buffers()); }};
}

CheckpointItem optimizer_item(const std::string& name, torch::optim::Optimizer& optimizer) {
  // A job whose ranks shared it may have saved it.
  const auto reading = std::make_shared<StateInParts>(optimizer);
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) refuse("a parameter", parameter);
  }
  return {.name = name,
          .scope = has_comparable_parts(optimizer) ? ItemScope::kReplicated : ItemScope::kCompared,
          .save = [&optimizer] { return save_optimizer_parts(optimizer); },
          .load =
              [&optimizer, reading](const SavedStates& saved) {
                load_optimizer_parts(saved.own(), optimizer);
                reading->expect(saved.own());
              },
          .wish_parts = [reading](const PartTensors& saved) -> PartWishes {
            const auto wished = std::make_shared<WishedState>(
                reading->wish(saved, {}, [](const at::Tensor&) { return false; }));
            return {wished->wishes(), [wished] { (void)wished->take(); }};
          }};
}

CheckpointItem generator_item(const std::string& name, const at::Generator& generator) {
  // Copies of the handle: to lock one is not const.
  const auto save = [own = at::Generator(generator)]() mutable {
    const std::lock_guard lock(own.mutex());
    CheckpointState state;
    state.set_tensor("state", own.get_state());
    return state;
  };
  const auto load = [own = at::Generator(generator)](const SavedStates& saved) mutable {
    const at::Tensor state = saved.own().tensor("state");
    const std::lock_guard lock(own.mutex());
    if (static_cast<std::size_t>(saved.rank) < saved.ranks.size()) {
      own.set_state(state);
      return;
    }
    // A rank that the old job did not have: two ranks must not draw the same numbers.
    const EntryDigest digest =
        entry_digest({static_cast<const std::byte*>(state.const_data_ptr()), state.nbytes()});
    own.set_current_seed(digest.low + static_cast<std::uint64_t>(saved.rank));
  };
  return {.name = name, .scope = ItemScope::kPerRank, .save = save, .load = load};
}

}  // namespace chainmail::internal
