// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Devices that LibTorch takes for accelerators (of the type PrivateUse1) over the GPUs of a
// FakeMachine: streams run late, as a GPU's do, and memory comes from an allocator that hands out
// again at once, to the same stream, what is given back, as torch's caching allocator does, unless
// it has been recorded on another stream, which must then be done with it first. What is freed too
// early has other values in it when its user runs.
//
// Operators that write in place are queued on the current stream and run by the CPU's, later;
// others are refused. Device i is the GPU of rank i. Any thread.

#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "tests/ops/support/fake_gpu/fake_nccl.h"

namespace chainmail::testing {

inline constexpr c10::DeviceType kLateDevice = c10::DeviceType::PrivateUse1;

/// The devices of this process while it lives; one at a time.
class LateDevices {
 public:
  explicit LateDevices(std::vector<test::FakeLibrary*> libraries);
  ~LateDevices();
  LateDevices(const LateDevices&) = delete;
  LateDevices& operator=(const LateDevices&) = delete;
};

/// The stream that is current where no other has been made so.
[[nodiscard]] const test::FakeStream* default_stream(int index);

/// A new tensor on device `index`, allocated for the current stream, which writes `values` (on the
/// CPU) to it.
[[nodiscard]] at::Tensor late_tensor(const at::Tensor& values, int index);

/// Its elements now, whatever is queued.
[[nodiscard]] at::Tensor now_in(const at::Tensor& tensor);

}  // namespace chainmail::testing
