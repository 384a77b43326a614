// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// An optimizer as named values: the tensors of SGD, Adam and AdamW one by one, any other optimizer
// as torch writes it. Local.

#pragma once

#include <torch/optim/optimizer.h>

#include <chainmail/checkpoint.h>

namespace chainmail::internal {

/// Whether save_optimizer_parts() gives the same on ranks with the same optimizer: torch's own
/// archives hold addresses.
[[nodiscard]] bool has_comparable_parts(const torch::optim::Optimizer& optimizer);

/// "torch::optim::SGD with 2 groups of 5 3 parameters"
[[nodiscard]] std::string describe_optimizer(torch::optim::Optimizer& optimizer);

[[nodiscard]] CheckpointState save_optimizer_parts(torch::optim::Optimizer& optimizer);

/// Replaces state and hyper-parameters.
/// @throws CheckpointError  the checkpoint's is another optimizer, or has other parameters
void load_optimizer_parts(const CheckpointState& state, torch::optim::Optimizer& optimizer);

}  // namespace chainmail::internal
