// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// An optimizer's state and hyper-parameters as bytes, as torch writes them into files.

#pragma once

#include <string>

#include <torch/optim/optimizer.h>

namespace chainmail::internal {

[[nodiscard]] std::string save_optimizer(const torch::optim::Optimizer& optimizer);

/// Replaces all state; `optimizer` must have the same groups as the saved one.
void load_optimizer(const std::string& bytes, torch::optim::Optimizer& optimizer);

/// The same, but state that is there already stays, unless the archive has another for it.
void add_to_optimizer(const std::string& bytes, torch::optim::Optimizer& optimizer);

}  // namespace chainmail::internal
