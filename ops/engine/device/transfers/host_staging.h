// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The cross step of non_cuda_aware: a thread of the leader that waits for a chunk's copy to pinned
// memory, hands it to a group of the leaders on the CPU (TCP or MPI, 16-bit wire), and releases the
// stream that waits to copy it back.
//
// start() from one thread at a time, the rest from any.

#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "ops/algorithms/stream/stream_work.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/device/operation/device_operation.h"
#include "ops/engine/group.h"

namespace chainmail::ops {

class HostStaging {
 public:
  /// Told of a failure of the leaders' group, in any thread. Must not throw.
  using Report = std::function<void(std::exception_ptr)>;

  /// `leaders` is this rank's end of the leaders' group.
  HostStaging(std::shared_ptr<DeviceResources> resources, std::shared_ptr<Group> leaders,
              Report report);
  ~HostStaging();
  HostStaging(const HostStaging&) = delete;
  HostStaging& operator=(const HostStaging&) = delete;

  [[nodiscard]] HostCrossing& crossing() noexcept { return crossing_; }
  /// Ends the leaders' group and lets waiting streams go on; what they copy means nothing.
  void abort(const std::exception_ptr& error) noexcept;

 private:
  struct Chunk {
    DeviceEvent ready;
    std::byte* data = nullptr;
    std::size_t count = 0;
    Reduction reduction;
    std::uint32_t ticket = 0;
  };

  /// The leaders' all-reduce of a chunk, which the stream waits for.
  struct InFlight {
    std::shared_ptr<Operation> operation;
    std::uint32_t ticket = 0;
  };

  std::uint32_t start(DeviceEvent ready, std::byte* data, std::size_t count,
                      const Reduction& reduction);
  void run();
  bool wait_for_copy(const Chunk& chunk);
  void reduce(const Chunk& chunk);
  bool release_reduced() noexcept;
  // Never back: an abort may have released more.
  void release(std::uint32_t ticket) noexcept { release_word(*crossing_.flag, ticket); }

  const std::shared_ptr<DeviceResources> resources_;
  const std::shared_ptr<Group> leaders_;
  const Report report_;
  GrowingMemory memory_;
  HostCrossing crossing_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Chunk> chunks_;
  std::deque<InFlight> in_flight_;  ///< the thread's own
  std::uint32_t last_ticket_ = 0;
  bool is_stopping_ = false;
  bool is_aborted_ = false;
  std::thread thread_;
};

/// This rank's end of a group of the nodes' leaders, for a leader of `group`; waits for nobody.
[[nodiscard]] std::shared_ptr<Group> create_leaders_group(const Group& group,
                                                          std::shared_ptr<Rendezvous> rendezvous);

}  // namespace chainmail::ops
