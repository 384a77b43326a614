// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/items/optimizer/sliced_optimizer.h"

#include <memory>
#include <unordered_set>

#include "plugin/checkpoint/items/optimizer/state_in_parts.h"
#include "plugin/train/optimizer/model_exchange.h"

namespace chainmail::internal {

/// What a checkpoint has to know of a multi-node optimizer.
struct SliceAccess {
  static OptimizerSlices* slices(const MultiNodeOptimizer& optimizer) { return optimizer.slices(); }
  static const GradientExchange& gradients(const MultiNodeOptimizer& optimizer) {
    return optimizer.exchange().gradients();
  }
};

namespace {

// Of the parameters as they are now. Those without elements are whole on all ranks.
auto in_slices(const MultiNodeOptimizer& optimizer) {
  std::unordered_set<const c10::TensorImpl*> known;
  for (const NamedTensor& parameter : SliceAccess::gradients(optimizer).parameters()) {
    if (parameter.tensor.numel() > 0) known.insert(parameter.tensor.unsafeGetTensorImpl());
  }
  return [known = std::move(known)](const at::Tensor& parameter) {
    return known.count(parameter.unsafeGetTensorImpl()) != 0;
  };
}

}  // namespace

bool saves_slices(const MultiNodeOptimizer& optimizer) {
  const OptimizerSlices* const slices = SliceAccess::slices(optimizer);
  return slices != nullptr && slices->can_move_state();
}

CheckpointItem sliced_optimizer_item(const std::string& name, MultiNodeOptimizer& optimizer) {
  CheckpointItem item = optimizer_item(name, optimizer.actual_optimizer());
  const auto reading = std::make_shared<StateInParts>(optimizer.actual_optimizer());
  item.save = [&optimizer] {
    // First of all it gives parameters the order back that is written down.
    (void)SliceAccess::slices(optimizer)->own_parts(SliceAccess::gradients(optimizer));
    return save_optimizer_without(optimizer.actual_optimizer(), in_slices(optimizer));
  };
  item.load = [&optimizer, reading](const SavedStates& saved) {
    load_optimizer_parts(saved.own(), optimizer.actual_optimizer());
    reading->expect(saved.own());
  };
  item.save_parts = [&optimizer] {
    OptimizerSlices& slices = *SliceAccess::slices(optimizer);
    RankParts parts = save_state_in_parts(optimizer.actual_optimizer(),
                                          slices.own_state(SliceAccess::gradients(optimizer)));
    parts.slice = slices.slice();
    parts.is_copy = slices.is_copy();
    return parts;
  };
  item.wish_parts = [&optimizer, reading](const PartTensors& saved) -> PartWishes {
    OptimizerSlices& slices = *SliceAccess::slices(optimizer);
    const auto wished = std::make_shared<WishedState>(reading->wish(
        saved, slices.own_parts(SliceAccess::gradients(optimizer)), in_slices(optimizer)));
    return {wished->wishes(), [&optimizer, &slices, wished] {
              slices.take_state(SliceAccess::gradients(optimizer), wished->take());
            }};
  };
  return item;
}

}  // namespace chainmail::internal
