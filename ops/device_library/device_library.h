// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How this process comes to its GPUs: libchainmail_cuda.so, opened by whoever first asks for CUDA.
//
// Any thread. libchainmail.so itself links neither CUDA nor NCCL.

#pragma once

#include <cstdint>
#include <string>

#include "ops/comm/nccl/nccl_api.h"
#include "ops/device/device_api.h"

namespace chainmail::ops {

/// What libchainmail_cuda.so gives; lives as long as the process.
class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;
  /// Why CUDA tensors cannot be reduced here (no driver, no device, no NCCL in the process, one too
  /// old); empty when they can. libtorch_cuda must have been loaded: its NCCL is the one used.
  virtual std::string refusal() = 0;
  /// "CUDA 13.0, NCCL 2.28.9 (/usr/lib/libnccl.so.2)", for people. Valid when refusal() is empty.
  virtual std::string describe() = 0;
  virtual DeviceApi& device() = 0;
  virtual NcclApi& nccl() = 0;
};

/// `chainmail_device_library(kDeviceLibraryVersion)` is the library's one function: null when it
/// was built for another version of these headers.
using DeviceLibraryFunction = DeviceLibrary* (*)(std::uint32_t version);
inline constexpr std::uint32_t kDeviceLibraryVersion = 1;
inline constexpr char kDeviceLibraryFunction[] = "chainmail_device_library";
inline constexpr char kDeviceLibraryFile[] = "libchainmail_cuda.so";

/// Opens the library of that file name beside this code, or where the system looks, and asks for
/// its refusal. Throws InvalidArgument that says in one sentence what is missing.
[[nodiscard]] DeviceLibrary& open_device_library(const std::string& file = kDeviceLibraryFile);

}  // namespace chainmail::ops
