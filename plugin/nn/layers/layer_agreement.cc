// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/layers/layer_agreement.h"

#include <algorithm>
#include <cstddef>

#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail::internal {

std::string find_difference(const std::vector<LayerPlan>& plans) {
  const LayerPlan& first = plans.front();
  for (std::size_t r = 1; r < plans.size(); ++r) {
    const LayerPlan& other = plans[r];
    const std::string rank = "rank " + std::to_string(r);
    if (other.kind != first.kind) {
      return "rank 0 makes a " + first.kind + ", " + rank + " a " + other.kind +
             "; all ranks make the same layers in the same order";
    }
    for (std::size_t i = 0; i < std::min(first.options.size(), other.options.size()); ++i) {
      if (other.options[i].value == first.options[i].value) continue;
      return first.kind + ": " + first.options[i].name + " is " + first.options[i].value +
             " on rank 0, " + other.options[i].value + " on " + rank +
             "; a layer has the same options on all ranks";
    }
  }
  return {};
}

void require_same_layer(const std::shared_ptr<Communicator>& communicator, const LayerPlan& own) {
  require_communicator(communicator, own.kind.c_str());
  const std::string difference = find_difference(communicator->allgather_obj(own));
  if (!difference.empty()) fail_on_all_ranks(*communicator, difference);
}

}  // namespace chainmail::internal
