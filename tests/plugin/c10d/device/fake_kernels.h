// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Operators on the tensors of fake devices, for programs that link this: they are the CPU's, run at
// once on the memory where it lies. Autograd goes through them as it does on a GPU, in a thread of
// the device.

#pragma once

#include <ATen/core/Tensor.h>

namespace chainmail::testing {

/// A tensor on a fake device with memory of its own and the elements of `values`, on the CPU.
[[nodiscard]] at::Tensor on_fake_device(const at::Tensor& values, int device = 0);

/// The same memory as a CPU tensor; what is no fake tensor is returned as it is.
[[nodiscard]] at::Tensor as_cpu_tensor(const at::Tensor& tensor);

}  // namespace chainmail::testing
