// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Gradients of programs that communicate, against differences: torch's gradcheck is Python's, and
// sees one process.

#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include <chainmail/communicator.h>

namespace chainmail::testing {

/// A forward of one rank, from its inputs to its part of the loss, a float64 scalar.
using RankLoss = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;
/// A backward from it.
using RankBackward = std::function<void(const at::Tensor& loss)>;

/// Compares the gradients that `backward` leaves at this rank's `inputs` (float64 leaves that need
/// a gradient; how many, and of which shapes, may differ by rank) with central differences of the
/// sum of all ranks' losses. Adds a test failure for each element that is off by more than 1e-7,
/// relative. An undefined gradient counts as zero. Collective.
void check_gradients(const std::shared_ptr<Communicator>& communicator,
                     const std::vector<at::Tensor>& inputs, const RankLoss& loss,
                     const RankBackward& backward);

/// Float64, some waves that no other seed has, with a gradient: threads share torch's generator.
[[nodiscard]] at::Tensor waves(at::IntArrayRef sizes, double seed);

/// A scalar that depends on each element of each tensor in a way of its own, and not linearly.
[[nodiscard]] at::Tensor mix(const std::vector<at::Tensor>& tensors, double seed);

}  // namespace chainmail::testing
