// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/device_library/device_library.h"

#include "base/error.h"
#include "base/shared_library.h"

namespace chainmail::ops {

DeviceLibrary& open_device_library(const std::string& file) {
  const internal::LibraryOnDemand library(
      "CUDA tensors", reinterpret_cast<const void*>(&open_device_library), file,
      "It is built where nvcc and nccl.h are (CHAINMAIL_CUDA=ON) and needs CUDA's runtime library");
  DeviceLibrary* const opened = library.ask<DeviceLibraryFunction>(
      kDeviceLibraryFunction, [](auto function) { return function(kDeviceLibraryVersion); });
  if (const std::string refusal = opened->refusal(); !refusal.empty()) {
    throw InvalidArgument("CUDA tensors: " + refusal);
  }
  return *opened;
}

}  // namespace chainmail::ops
