// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/device_library/device_library.h"

#include <dlfcn.h>

#include "base/error.h"
#include "base/shared_library.h"

namespace chainmail::ops {

DeviceLibrary& open_device_library(const std::string& file) {
  std::string path;
  std::string reasons;
  void* const library = internal::open_library_beside(
      reinterpret_cast<const void*>(&open_device_library), file, path, reasons);
  if (library == nullptr) {
    throw InvalidArgument("CUDA tensors: " + file +
                          " cannot be opened. It is built where nvcc and nccl.h are "
                          "(CHAINMAIL_CUDA=ON) and needs CUDA's runtime library (" +
                          reasons + ")");
  }
  const auto function =
      reinterpret_cast<DeviceLibraryFunction>(::dlsym(library, kDeviceLibraryFunction));
  DeviceLibrary* const opened = function == nullptr ? nullptr : function(kDeviceLibraryVersion);
  if (opened == nullptr) {
    throw InvalidArgument("CUDA tensors: " + path + " belongs to another version of Chainmail");
  }
  if (const std::string refusal = opened->refusal(); !refusal.empty()) {
    throw InvalidArgument("CUDA tensors: " + refusal);
  }
  return *opened;
}

}  // namespace chainmail::ops
