// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A collective queued on a GPU's stream, as c10d's callers see it.
//
// Waiting makes the caller's current stream wait, not its thread; only a wait with a limit blocks.
// All memory that the operation uses is kept from reuse until its stream is done with it: the Work
// holds it until the stream that it was called on waits for the operation, and where that does not
// happen the allocator is told which stream uses it. Any thread.

#pragma once

#include <c10/core/Event.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ops/engine/device/device_group.h"
#include "plugin/c10d/work/work.h"

namespace chainmail::internal {

/// Memory that goes back to the allocator from now on is not given out again before `stream` is
/// done with what it has been given. Logs failures.
void keep_for(at::TensorList tensors, c10::Stream stream) noexcept;

/// An operation on its stream.
struct QueuedOnDevice {
  c10::Stream stream;
  c10::Stream caller;  ///< the current one when it was issued
  std::shared_ptr<ops::DeviceOperation> operation;
  std::optional<c10::Event> end;  ///< unset: on the caller's own stream, in order with the rest
};

class DeviceWork final : public GroupWork {
 public:
  /// `memory`: all that the operation reads and writes.
  DeviceWork(int rank, c10d::OpType type, std::uint64_t sequence, std::shared_ptr<Payload> payload,
             std::vector<at::Tensor> memory, QueuedOnDevice queued,
             std::weak_ptr<ops::Group> group);
  ~DeviceWork() override;

  bool isCompleted() override { return is_done(); }
  std::exception_ptr exception() const override { return queued_.operation->error(); }
  /// Throws the operation's error as far as it is known by now. With a timeout: blocks until the
  /// device is done, TimeoutError when it passes first.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  /// Completed at once; waiting for it makes streams wait, and callbacks run on streams that do.
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

 private:
  bool is_done() const override { return queued_.operation->is_done(); }
  [[nodiscard]] c10::intrusive_ptr<c10::ivalue::Future> completed_future() const;
  void follow();

  const QueuedOnDevice queued_;
  std::mutex mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::vector<at::Tensor> memory_;  // until the caller's stream waits for the operation
};

}  // namespace chainmail::internal
