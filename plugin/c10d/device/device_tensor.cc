// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/device/device_tensor.h"

#include <cstddef>
#include <exception>
#include <string>

#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "base/log.h"

namespace chainmail::internal {

namespace {

struct HeldMemory {
  c10::Device device;
  std::shared_ptr<std::byte> memory;
};

// Freeing NCCL's memory does not wait for the device; kernels that use it may still be queued.
void free_device_memory(void* held) noexcept {
  const std::unique_ptr<HeldMemory> memory(static_cast<HeldMemory*>(held));
  try {
    c10::impl::VirtualGuardImpl(memory->device.type()).synchronizeDevice(memory->device.index());
  } catch (const std::exception& failure) {
    log_line(LogLevel::kWarning,
             std::string("freeing memory of ") + memory->device.str() + ": " + failure.what());
  }
}

}  // namespace

at::Tensor registered_tensor(const DeviceContext& context, std::int64_t elements,
                             c10::ScalarType dtype) {
  const c10::Device device = context.device();
  const auto memory =
      context.group().allocate(static_cast<std::size_t>(elements) * c10::elementSize(dtype));
  return at::for_blob(memory.get(), {elements})
      .options(c10::TensorOptions(dtype).device(device))
      .target_device(device)
      .context(new HeldMemory{device, memory}, free_device_memory)
      .make_tensor();
}

}  // namespace chainmail::internal
