// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// DeviceApi over CUDA's runtime.
//
// Any thread; holds nothing.

#pragma once

#include <memory>

#include "ops/device/device_api.h"

namespace chainmail::ops::cuda {

[[nodiscard]] std::unique_ptr<DeviceApi> make_cuda_device();

}  // namespace chainmail::ops::cuda
