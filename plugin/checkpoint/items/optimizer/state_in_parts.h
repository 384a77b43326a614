// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The state of torch's element-wise optimizers as parts of tensors (store/parts.h): of every
// parameter "group 1/parameter 0/exp_avg" and so on, in the order in which the parameter's elements
// lie in memory, and one count of steps that all parts share.
//
// Local.

#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <chainmail/checkpoint.h>

#include "plugin/checkpoint/items/items.h"
#include "plugin/checkpoint/items/optimizer/optimizer_parts.h"
#include "plugin/train/sharding/optimizer_slices.h"

namespace chainmail::internal {

using OwnState = OptimizerSlices::OwnState;

/// What this rank has, as ranges of at most kMaxRangeBytes.
[[nodiscard]] RankParts save_state_in_parts(torch::optim::Optimizer& optimizer,
                                            const std::vector<OwnState>& own);

/// What a rank wants of parts, and where it keeps it until it has all.
class WishedState {
 public:
  [[nodiscard]] const std::vector<PartWish>& wishes() const noexcept { return wishes_; }
  /// Once all are fulfilled: gives the optimizer the state of whole parameters and returns that of
  /// slices.
  [[nodiscard]] std::vector<OwnState> take();

 private:
  friend class StateInParts;
  // Of one parameter.
  struct Pending {
    at::Tensor parameter;
    bool is_whole = true;  ///< otherwise only this is wanted:
    std::size_t begin = 0;
    std::size_t end = 0;
    bool is_read_whole = true;  ///< it is cut here, as it lies in memory in another way
    ParameterState state = {};
    at::Tensor step = {};
  };
  explicit WishedState(torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {}

  torch::optim::Optimizer& optimizer_;
  std::vector<Pending> pending_;
  std::vector<PartWish> wishes_;
};

/// What a checkpoint with parts has of an optimizer.
class StateInParts {
 public:
  explicit StateInParts(torch::optim::Optimizer& optimizer);

  /// What the checkpoint says of the optimizer's parameters.
  /// @throws CheckpointError  a parameter of another shape
  void expect(const CheckpointState& saved);
  /// The state of all parameters, whole, but of those in slices what is in `own`.
  /// @throws CheckpointError  a tensor of another size than its parameter, one that is missing, or
  ///                          one that is no state of this optimizer
  [[nodiscard]] WishedState wish(
      const PartTensors& saved, const std::vector<OwnState>& own,
      const std::function<bool(const at::Tensor& parameter)>& is_in_slices) const;

 private:
  using Pending = WishedState::Pending;

  void expect_known(const PartTensors& saved) const;
  void wish_state(const std::string& prefix, const PartTensors& saved, Pending pending,
                  WishedState& wished) const;

  torch::optim::Optimizer& optimizer_;
  std::vector<std::string> names_;               ///< of a ParameterState's tensors, in their order
  std::map<std::string, MemoryLayout> layouts_;  ///< by prefix
};

}  // namespace chainmail::internal
