// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/device/device_packing.h"

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "ops/device/device_memory.h"

namespace chainmail::ops {
namespace {

class Table final : public DevicePack {
 public:
  Table(DeviceApi& api, int device, std::span<const PackedTensor> tensors)
      : api_(api), device_(device) {
    const std::vector<PackBlock> blocks = plan_pack(tensors);
    count_ = blocks.size();
    if (count_ != 0) upload(blocks);
  }
  ~Table() override {
    // Frees wait for the device, so that no queued launch loses the table.
    api_.free(blocks_);
  }
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  void pack(void* buffer, DataType buffer_type, double scale, std::uint32_t* flag,
            DeviceStream stream) override {
    if (count_ == 0) return;
    const DeviceGuard guard(api_, device_);
    check_device(api_,
                 api_.kernels().pack(static_cast<PackBlock*>(blocks_), count_, buffer, buffer_type,
                                     scale, flag, stream),
                 "packing");
  }
  void unpack(const void* buffer, DataType buffer_type, double scale, std::uint32_t* flag,
              DeviceStream stream) override {
    if (count_ == 0) return;
    const DeviceGuard guard(api_, device_);
    check_device(api_,
                 api_.kernels().unpack(static_cast<PackBlock*>(blocks_), count_, buffer,
                                       buffer_type, scale, flag, stream),
                 "unpacking");
  }

 private:
  void upload(const std::vector<PackBlock>& blocks) {
    const DeviceGuard guard(api_, device_);
    const std::size_t bytes = blocks.size() * sizeof(PackBlock);
    GrowingMemory staging(api_, GrowingMemory::Kind::kPinned);
    std::byte* const pinned = staging.get(bytes);
    std::memcpy(pinned, blocks.data(), bytes);
    DeviceStream stream;
    check_device(api_, api_.create_stream(stream), "making a stream");
    EventPool events(api_);
    const DeviceEvent done = events.take();
    DeviceCode code = api_.allocate(blocks_, bytes);
    if (code == kDeviceSuccess) code = api_.copy(blocks_, pinned, bytes, stream);
    if (code == kDeviceSuccess) code = api_.record(done, stream);
    while (code == kDeviceSuccess) {
      code = api_.query(done);
      if (code != kDeviceNotReady) break;
      code = kDeviceSuccess;
      std::this_thread::sleep_for(std::chrono::microseconds{20});
    }
    events.give_back(done);
    api_.destroy_stream(stream);
    check_device(api_, code, "copying a table to the device");
  }

  DeviceApi& api_;
  const int device_;
  void* blocks_ = nullptr;
  std::size_t count_ = 0;
};

constexpr std::chrono::milliseconds kPatience{1000};

NcclWait short_wait() {
  return {internal::Deadline::after(kPatience), [] {}};
}

/// A buffer and what each communicator calls it.
class RegisteredMemory {
 public:
  RegisteredMemory(DeviceLibrary& library, int device, std::size_t bytes)
      : library_(library), device_(device) {
    const DeviceGuard guard(library_.device(), device_);
    const NcclCode code = library_.nccl().allocate(memory_, bytes);
    if (code != NcclCode::kSuccess) {
      throw NcclError("allocating " + std::to_string(bytes) +
                          " bytes with NCCL: " + library_.nccl().describe(code, {}),
                      static_cast<int>(code));
    }
  }
  ~RegisteredMemory() {
    for (const auto& [weak, registration] : registrations_) {
      const auto comm = weak.lock();
      if (comm == nullptr) continue;
      try {
        comm->call("deregister", short_wait(), [&, handle = registration](NcclHandle nccl) {
          return library_.nccl().deregister_memory(nccl, handle);
        });
      } catch (const Error&) {
        // The communicator was ended, and its registrations with it.
      }
    }
    try {
      const DeviceGuard guard(library_.device(), device_);
      library_.nccl().free(memory_);
    } catch (const Error&) {
      // The device is gone, and the memory with it.
    }
  }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  void register_with(const std::shared_ptr<NcclComm>& comm, std::size_t bytes) {
    const DeviceGuard guard(library_.device(), device_);
    void* registration = nullptr;
    comm->call("register", short_wait(), [&](NcclHandle nccl) {
      return library_.nccl().register_memory(nccl, memory_, bytes, registration);
    });
    registrations_.emplace_back(comm, registration);
  }
  std::byte* get() const noexcept { return static_cast<std::byte*>(memory_); }

 private:
  DeviceLibrary& library_;
  const int device_;
  void* memory_ = nullptr;
  std::vector<std::pair<std::weak_ptr<NcclComm>, void*>> registrations_;
};

}  // namespace

std::unique_ptr<DevicePack> make_device_pack(DeviceApi& api, int device,
                                             std::span<const PackedTensor> tensors) {
  return std::make_unique<Table>(api, device, tensors);
}

std::shared_ptr<std::byte> allocate_for_nccl(DeviceLibrary& library, int device,
                                             const std::vector<std::shared_ptr<NcclComm>>& comms,
                                             std::size_t bytes) {
  auto memory = std::make_shared<RegisteredMemory>(library, device, bytes);
  for (const auto& comm : comms) memory->register_with(comm, bytes);
  return {memory, memory->get()};
}

}  // namespace chainmail::ops
