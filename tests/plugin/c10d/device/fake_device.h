// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Two devices that LibTorch takes for accelerators (of the type PrivateUse1) and that do nothing
// but write down what is asked of them: streams, events, collectives. Their memory is the host's.

#pragma once

#include <ATen/core/Tensor.h>

#include <chrono>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/engine/device/device_group.h"

namespace chainmail::testing {

/// What was asked since the last call, in order: "all_reduce on s0", "record e1 on s0", "s1 waits
/// for e1", "memory kept for s1". Stream s0 is every device's default one.
[[nodiscard]] std::vector<std::string> take_calls();

inline constexpr c10::DeviceType kFakeDevice = c10::DeviceType::PrivateUse1;

/// Host memory as a float32 tensor on a fake device; `memory` must outlive it.
[[nodiscard]] at::Tensor fake_tensor(std::vector<float>& memory, int device = 0);

/// What its operations do from now on.
struct FakeOutcome {
  bool is_done = true;
  std::exception_ptr error;        ///< of every operation
  std::exception_ptr issue_error;  ///< thrown instead of queueing
};

[[nodiscard]] std::shared_ptr<ops::DeviceGroup> make_fake_group(
    int device, std::shared_ptr<const FakeOutcome> outcome);

}  // namespace chainmail::testing
