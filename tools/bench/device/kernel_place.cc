// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/device/kernel_place.h"

#include <cstdint>
#include <vector>

#include "ops/device/device_memory.h"
#include "ops/engine/device/device_packing.h"
#include "ops/kernels/pack.h"

namespace chainmail::bench {
namespace {

/// The walk that the GPU's is compared with bit for bit; one element after the other.
class HostPack final : public ops::DevicePack {
 public:
  explicit HostPack(std::span<const ops::PackedTensor> tensors) : blocks_(plan_pack(tensors)) {}
  void pack(void* buffer, ops::DataType buffer_type, double scale, std::uint32_t* flag,
            ops::DeviceStream /*stream*/) override {
    if (ops::pack(blocks_, buffer, buffer_type, scale)) *flag = 1;
  }
  void unpack(const void* buffer, ops::DataType buffer_type, double scale, std::uint32_t* flag,
              ops::DeviceStream /*stream*/) override {
    if (ops::unpack(blocks_, buffer, buffer_type, scale)) *flag = 1;
  }

 private:
  const std::vector<ops::PackBlock> blocks_;
};

class HostPlace final : public KernelPlace {
 public:
  std::string describe() const override {
    return "the CPU's scalar reference of the device's kernels";
  }
  std::unique_ptr<ops::DevicePack> make_pack(std::span<const ops::PackedTensor> tensors) override {
    return std::make_unique<HostPack>(tensors);
  }
  void add_parts(void* result, const void* messages, std::size_t part, int message_count, int own,
                 const void* own_message, std::size_t count, ops::WireFormat wire,
                 ops::DeviceStream /*stream*/) override {
    ops::add_parts(result, messages, part, message_count, own, own_message, count, wire,
                   /*is_mean=*/false);
  }
  void round_parts(void* messages, std::size_t part, const void* source, std::size_t count,
                   ops::WireFormat wire, ops::DeviceStream /*stream*/) override {
    ops::round_parts(messages, part, source, count, /*scale=*/1.0, wire);
  }
  void widen_parts(void* target, const void* messages, std::size_t part, std::size_t count,
                   ops::WireFormat wire, ops::DeviceStream /*stream*/) override {
    static_cast<void>(ops::widen_parts(target, messages, part, count, wire));
  }
};

class DevicePlace final : public KernelPlace {
 public:
  DevicePlace(ops::DeviceLibrary& library, int device) : library_(library), device_(device) {}
  std::string describe() const override { return library_.describe(); }
  std::unique_ptr<ops::DevicePack> make_pack(std::span<const ops::PackedTensor> tensors) override {
    return ops::make_device_pack(library_.device(), device_, tensors);
  }
  void add_parts(void* result, const void* messages, std::size_t part, int message_count, int own,
                 const void* own_message, std::size_t count, ops::WireFormat wire,
                 ops::DeviceStream stream) override {
    const ops::DeviceGuard guard(library_.device(), device_);
    ops::check_device(library_.device(),
                      library_.device().kernels().add_parts(result, messages, part, message_count,
                                                            own, own_message, count, wire,
                                                            /*is_mean=*/false, stream),
                      "adding halves");
  }
  void round_parts(void* messages, std::size_t part, const void* source, std::size_t count,
                   ops::WireFormat wire, ops::DeviceStream stream) override {
    const ops::DeviceGuard guard(library_.device(), device_);
    ops::check_device(library_.device(),
                      library_.device().kernels().round_parts(messages, part, source, count,
                                                              /*scale=*/1.0, wire, stream),
                      "rounding");
  }
  void widen_parts(void* target, const void* messages, std::size_t part, std::size_t count,
                   ops::WireFormat wire, ops::DeviceStream stream) override {
    const ops::DeviceGuard guard(library_.device(), device_);
    ops::check_device(library_.device(),
                      library_.device().kernels().widen_parts(target, messages, part, count, wire,
                                                              /*flag=*/nullptr, stream),
                      "widening halves");
  }

 private:
  ops::DeviceLibrary& library_;
  const int device_;
};

}  // namespace

std::unique_ptr<KernelPlace> make_host_place() { return std::make_unique<HostPlace>(); }

std::unique_ptr<KernelPlace> make_device_place(ops::DeviceLibrary& library, int device) {
  return std::make_unique<DevicePlace>(library, device);
}

}  // namespace chainmail::bench
