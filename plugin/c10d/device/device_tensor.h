// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors in memory that the links of a device know.
//
// Local.

#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "plugin/c10d/device/device_context.h"

namespace chainmail::internal {

/// `elements` in a row, in memory that is registered with the communicators that `context`'s group
/// has by now. Freeing it waits for the device, which may still work with it.
[[nodiscard]] at::Tensor registered_tensor(const DeviceContext& context, std::int64_t elements,
                                           c10::ScalarType dtype);

}  // namespace chainmail::internal
