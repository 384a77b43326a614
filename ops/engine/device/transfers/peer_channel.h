// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sends, or receives, between this rank and one other that are not part of a batch: a channel for
// each direction, with a communicator of the two ranks alone. So transfers wait for their peer and
// for nothing else: not for the group's collectives, not for the transfers the other way, whatever
// order a program calls them in.
//
// A communicator is made when its first transfer is issued, which does not wait for that: a thread
// of the channel does, since the peer may come much later, and only after something that it is
// waiting for here. Until the communicator is there, and what was issued meanwhile is done, the
// caller's stream is held by a word in pinned memory and the transfers run on a stream of the
// channel's own. From then on NCCL is called by who issues, on the stream that is given.
//
// Any thread.

#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "ops/comm/nccl/nccl_comm.h"
#include "ops/core/operation.h"
#include "ops/engine/device/operation/device_operation.h"

namespace chainmail::ops {

/// What channels need of their group.
struct PeerChannelContext {
  std::shared_ptr<DeviceResources> resources;
  /// Makes the communicator of a channel; both ranks must come.
  std::function<std::shared_ptr<NcclComm>(const Collective& transfer, const NcclWait& wait)> make;
  /// Its check throws the group's error and does nothing else: a channel is locked meanwhile.
  std::function<NcclWait(internal::Deadline)> wait_until;
  /// Told of what fails in a channel's thread. Must not throw.
  std::function<void(std::exception_ptr)> report;
};

class PeerChannel {
 public:
  explicit PeerChannel(const PeerChannelContext& context);
  /// Waits for the thread, which ends when its transfers are done or the group has failed.
  ~PeerChannel();
  PeerChannel(const PeerChannel&) = delete;
  PeerChannel& operator=(const PeerChannel&) = delete;

  /// Queues `transfer` behind what is on `stream` and behind the channel's transfers before it;
  /// `operation` ends with it. Throws as NcclComm does, and InvalidArgument where `stream` is being
  /// captured and there is no communicator yet.
  void issue(const Collective& transfer, const std::shared_ptr<IssuedOperation>& operation,
             DeviceStream stream, std::uint64_t capture, internal::Deadline deadline);
  /// Lets held streams go on. For a group that has failed, after its communicators were aborted.
  void release_all() noexcept;

 private:
  struct PendingTransfer {
    Collective transfer;
    DeviceEvent ready;  ///< what the caller has written
    std::uint32_t ticket = 0;
    internal::Deadline deadline;
  };

  DeviceApi& api() const noexcept { return context_.resources->api; }
  void defer(const Collective& transfer, DeviceStream stream, internal::Deadline deadline);
  void run() noexcept;
  void work();
  void carry_out(const PendingTransfer& pending, NcclComm& comm);
  // Never back: an abort may have released more.
  void release(std::uint32_t ticket) noexcept { release_word(*flag_, ticket); }

  const PeerChannelContext& context_;
  std::mutex mutex_;
  std::shared_ptr<NcclComm> comm_;  ///< null while the thread has the transfers
  std::deque<PendingTransfer> pending_;
  std::uint32_t* flag_ = nullptr;
  std::uint32_t last_ticket_ = 0;
  bool is_released_ = false;
  DeviceStream own_stream_;  ///< of the thread's transfers
  StreamOrder order_;
  std::thread thread_;
};

/// The channels of a group, made when first used.
class PeerChannels {
 public:
  explicit PeerChannels(PeerChannelContext context) : context_(std::move(context)) {}

  /// The channel of a kSend or kRecv. Throws InvalidArgument after end().
  [[nodiscard]] std::shared_ptr<PeerChannel> at(const Collective& transfer);
  void release_all() noexcept;
  /// Ends the channels, once; nothing must be under way but in a group that has failed.
  void end();

 private:
  using Key = std::pair<OpKind, int>;  // direction and peer
  const PeerChannelContext context_;
  std::mutex mutex_;
  bool has_ended_ = false;
  bool is_released_ = false;
  std::map<Key, std::shared_ptr<PeerChannel>> channels_;
};

}  // namespace chainmail::ops
