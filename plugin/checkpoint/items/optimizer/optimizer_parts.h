// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// An optimizer as named values: the tensors of SGD, Adam and AdamW one by one, any other optimizer
// as torch writes it. Local.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include <chainmail/checkpoint.h>

#include "plugin/tensor/memory_layout.h"

namespace chainmail::internal {

/// Whether save_optimizer_parts() gives the same on ranks with the same optimizer: torch's own
/// archives hold addresses.
[[nodiscard]] bool has_comparable_parts(const torch::optim::Optimizer& optimizer);

/// Calls visit("group 1/parameter 0/", parameter) for each.
void for_each_parameter(
    torch::optim::Optimizer& optimizer,
    const std::function<void(const std::string& prefix, const at::Tensor& parameter)>& visit);

/// "torch::optim::SGD with 2 groups of 5 3 parameters"
[[nodiscard]] std::string describe_optimizer(torch::optim::Optimizer& optimizer);

[[nodiscard]] CheckpointState save_optimizer_parts(torch::optim::Optimizer& optimizer);

/// The same, one by one, of torch's element-wise optimizers, without the state of those parameters
/// that are in slices; of them it says how they lie in memory.
[[nodiscard]] CheckpointState save_optimizer_without(
    torch::optim::Optimizer& optimizer,
    const std::function<bool(const at::Tensor& parameter)>& is_in_slices);
/// How a parameter lies in memory of which the checkpoint has elements in that order.
void save_layout(CheckpointState& state, const std::string& prefix, const MemoryLayout& layout);
/// How one lay for which save_layout() was called; nothing for another one.
/// @throws CheckpointError  what is there is no layout without gaps and overlaps
[[nodiscard]] std::optional<MemoryLayout> saved_layout(const CheckpointState& state,
                                                       const std::string& prefix);
/// The same for what lies row by row as a rule, when nothing is written; `now`: how the parameter
/// lies in the program.
void save_unusual_layout(CheckpointState& state, const std::string& prefix,
                         const MemoryLayout& layout);
/// @throws CheckpointError  as above, or of another shape than now
[[nodiscard]] MemoryLayout saved_unusual_layout(const CheckpointState& state,
                                                const std::string& prefix, const MemoryLayout& now);

/// In the parameter's own memory layout, which decides how the optimizer steps.
[[nodiscard]] at::Tensor laid_out_like(const at::Tensor& parameter, const at::Tensor& saved);

/// Replaces state and hyper-parameters.
/// @throws CheckpointError  the checkpoint's is another optimizer, or has other parameters
void load_optimizer_parts(const CheckpointState& state, torch::optim::Optimizer& optimizer);

}  // namespace chainmail::internal
