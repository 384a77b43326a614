// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Our kernels where they are measured: on a GPU, or their reference on the CPU.
//
// One thread at a time. No torch.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "ops/device_library/device_library.h"
#include "ops/engine/device/device_group.h"
#include "ops/types.h"

namespace chainmail::bench {

/// Our kernels, wherever they run.
class KernelPlace {
 public:
  virtual ~KernelPlace() = default;
  /// The device's own words.
  virtual std::string describe() const = 0;
  [[nodiscard]] virtual std::unique_ptr<ops::DevicePack> make_pack(
      std::span<const ops::PackedTensor> tensors) = 0;
  /// As ops::DeviceKernels::add_parts, for a sum.
  virtual void add_parts(void* result, const void* messages, std::size_t part, int message_count,
                         int own, const void* own_message, std::size_t count, ops::WireFormat wire,
                         ops::DeviceStream stream) = 0;
  /// As ops::DeviceKernels::round_parts and widen_parts.
  virtual void round_parts(void* messages, std::size_t part, const void* source, std::size_t count,
                           ops::WireFormat wire, ops::DeviceStream stream) = 0;
  virtual void widen_parts(void* target, const void* messages, std::size_t part, std::size_t count,
                           ops::WireFormat wire, ops::DeviceStream stream) = 0;
};

[[nodiscard]] std::unique_ptr<KernelPlace> make_host_place();
/// `library` must outlive it.
[[nodiscard]] std::unique_ptr<KernelPlace> make_device_place(ops::DeviceLibrary& library,
                                                             int device);

}  // namespace chainmail::bench
