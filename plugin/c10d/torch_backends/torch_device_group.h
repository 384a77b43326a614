// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A device group whose collectives are carried out by a c10d::Backend of torch's (ProcessGroupNCCL)
// on the current stream, which must be the one that issue() is given.
//
// Thread-safe. All-reduces only: it exists to compare with ours. A failure is torch's to report,
// which by default ends the process.

#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "ops/engine/device/device_group.h"

namespace chainmail::internal {

class TorchDeviceGroup final : public ops::DeviceGroup {
 public:
  /// `timeout` limits waits of the host.
  TorchDeviceGroup(c10::intrusive_ptr<c10d::Backend> backend, c10::Device device,
                   std::chrono::milliseconds timeout);
  ~TorchDeviceGroup() override;

  const ops::DeviceGroupOptions& options() const noexcept override { return options_; }
  std::shared_ptr<ops::DeviceOperation> issue(const ops::Collective& collective,
                                              ops::DeviceStream stream) override;
  std::shared_ptr<ops::DeviceOperation> issue_together(std::span<const ops::Collective> transfers,
                                                       ops::DeviceStream stream) override;
  std::shared_ptr<ops::DeviceOperation> mark(ops::DeviceStream stream,
                                             std::chrono::milliseconds limit) override;
  /// Torch makes its communicators in the first collective.
  void prepare(const ops::Collective& /*collective*/) override {}
  [[nodiscard]] std::unique_ptr<ops::DevicePack> make_pack(
      std::span<const ops::PackedTensor> tensors) override;
  /// Of torch's own allocator.
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void shutdown() override;
  std::exception_ptr error() const override { return nullptr; }

 private:
  /// Throws InvalidArgument when `stream` is another one.
  c10::Stream current_stream(ops::DeviceStream stream) const;

  const c10::Device device_;
  const std::chrono::milliseconds timeout_;
  const std::string name_;  // of the backend, for messages
  ops::DeviceGroupOptions options_;
  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Backend> backend_;  // null after shutdown
};

}  // namespace chainmail::internal
