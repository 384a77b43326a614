// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an optimizer keeps of one parameter or slice, without its type: for states that are cut into
// slices and put together again.
//
// Local.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

namespace chainmail::internal {

/// Empty where the optimizer's type is not known.
struct ParameterState {
  std::int64_t step = 0;
  std::vector<at::Tensor> tensors;  ///< shaped like the parameter, or undefined; as many per type
};

/// Whether states of this optimizer can be cut: exactly torch's own element-wise ones.
[[nodiscard]] bool has_known_state(const torch::optim::Optimizer& optimizer);
/// Of a parameter or slice; nothing where it has none.
[[nodiscard]] std::optional<ParameterState> read_state(torch::optim::Optimizer& optimizer,
                                                       const at::Tensor& key);
/// In place of what is there.
void write_state(torch::optim::Optimizer& optimizer, const at::Tensor& key, ParameterState state);
/// The elements `begin` to `end` of a state's tensor, in the order in which `parameter`, of the
/// same shape, has its own in memory: a copy.
[[nodiscard]] at::Tensor part_of_state(const at::Tensor& whole, const at::Tensor& parameter,
                                       std::size_t begin, std::size_t end);

/// From now on saving the optimizer by torch throws InvalidArgument, since a part of its state is
/// on other ranks.
void mark_sliced(torch::optim::Optimizer& optimizer);
/// The state is whole again.
void unmark_sliced(torch::optim::Optimizer& optimizer);
[[nodiscard]] bool is_marked_sliced(const torch::optim::Optimizer& optimizer);

}  // namespace chainmail::internal
