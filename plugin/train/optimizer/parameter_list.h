// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The parameters that a multi-node optimizer looks after, in the order that all ranks share, and
// their comparison between ranks.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <chainmail/communicator.h>
#include <chainmail/train/module_ref.h>

namespace chainmail::internal {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// Parameters of `model` in registration order, then those that only `optimizer` knows; each tensor
/// once. Here and below either may be null. Throws InvalidArgument for a slice of a Sharded module.
[[nodiscard]] std::vector<NamedTensor> collect_parameters(const ModuleRef& model,
                                                          const torch::optim::Optimizer* optimizer);

/// Defined buffers of `model`, which may be null.
[[nodiscard]] std::vector<NamedTensor> collect_buffers(const ModuleRef& model);

/// Changes whenever a parameter is added, removed, replaced, converted, frozen or unfrozen, or gets
/// another shape or device. Cheap enough for every step.
[[nodiscard]] std::vector<std::uintptr_t> parameter_signature(
    const ModuleRef& model, const torch::optim::Optimizer* optimizer);

/// One line per tensor and per group of the optimizer, equal on ranks that can train together.
[[nodiscard]] std::vector<std::string> describe_training_state(
    const std::vector<NamedTensor>& parameters, const std::vector<NamedTensor>& buffers,
    const torch::optim::Optimizer* optimizer);

/// Adds a line, equal on ranks that can train together, for each tensor that is not in host memory:
/// on which kind of device it is.
void describe_devices(const std::vector<NamedTensor>& tensors, std::vector<std::string>& lines);

/// The first that is on another device than the first of all; null where there is none.
[[nodiscard]] const NamedTensor* find_on_other_device(const std::vector<NamedTensor>& parameters);
/// The device on which all of them are, one or more.
/// @throws InvalidArgument  they are on several, and a rank trains on one
[[nodiscard]] c10::Device device_of(const std::vector<NamedTensor>& parameters);

/// Throws InvalidArgument, naming it, for a tensor that rank 0's values cannot be written to, or
/// whose gradients cannot be averaged.
void check_receivable(const char* kind, const std::vector<NamedTensor>& tensors);

/// Throws InvalidArgument: a parameter of a sharded optimizer is not what it `was` ("[3, 2]").
[[noreturn]] void refuse_changed(const std::string& name, const std::string& was,
                                 const std::string& now);

/// Begins a line that says what a program has asked for, not what its model is.
inline constexpr std::string_view kOptionLine = "option ";

/// Throws MismatchError on all ranks, naming the first line that differs and both ranks, unless all
/// ranks have the same lines; lines of options stand before all others. The error of ranks that are
/// in another operation meanwhile, because nothing has changed on them, names a line that is not in
/// `last` or has gone from there. Collective.
void compare_between_ranks(Communicator& communicator, const std::vector<std::string>& lines,
                           const std::vector<std::string>& last);

}  // namespace chainmail::internal
