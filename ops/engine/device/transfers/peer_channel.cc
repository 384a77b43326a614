// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/device/transfers/peer_channel.h"

#include <chrono>
#include <string>

#include "base/error.h"

namespace chainmail::ops {
namespace {

constexpr std::chrono::microseconds kPause{20};

void queue_transfer(const Collective& transfer, NcclComm& comm, DeviceStream stream,
                    const NcclWait& wait) {
  const std::size_t bytes = transfer.count * size_of(transfer.dtype);
  if (bytes == 0) return;
  const int peer = 1 - comm.rank();
  comm.call(to_string(transfer.kind), wait, [&](NcclHandle handle) {
    return transfer.kind == OpKind::kSend
               ? comm.api().send(transfer.input, bytes, peer, handle, stream)
               : comm.api().receive(transfer.output, bytes, peer, handle, stream);
  });
}

}  // namespace

PeerChannel::PeerChannel(const PeerChannelContext& context)
    : context_(context), flag_(context.resources->words.take()) {}

PeerChannel::~PeerChannel() {
  if (thread_.joinable()) thread_.join();
  for (const PendingTransfer& pending : pending_)
    context_.resources->events.give_back(pending.ready);
  try {
    const DeviceGuard guard(api(), context_.resources->device);
    if (own_stream_.handle != nullptr) api().destroy_stream(own_stream_);
  } catch (const Error&) {
    // The device is gone, and the stream with it.
  }
  if (context_.resources->failure.has_failed()) {
    release(last_ticket_);  // what a failed device still runs may look at the word again
  } else {
    context_.resources->words.give_back(flag_);
  }
}

void PeerChannel::issue(const Collective& transfer,
                        const std::shared_ptr<IssuedOperation>& operation, DeviceStream stream,
                        std::uint64_t capture, internal::Deadline deadline) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr && capture != 0) {
    throw InvalidArgument(std::string(to_string(transfer.kind)) +
                          ": a CUDA graph is being captured and there is no communicator for this "
                          "rank and rank " +
                          std::to_string(transfer.root) +
                          "; let the same transfer run once before the capture");
  }
  order_.follow(api(), stream, capture);
  if (comm_ != nullptr) {
    if (capture != 0) comm_->set_captured();
    queue_transfer(transfer, *comm_, stream, context_.wait_until(deadline));
  } else {
    defer(transfer, stream, deadline);
  }
  order_.end_with(api(), operation, stream, capture);
}

void PeerChannel::defer(const Collective& transfer, DeviceStream stream,
                        internal::Deadline deadline) {
  if (own_stream_.handle == nullptr) {
    check_device(api(), api().create_stream(own_stream_), "making a stream");
  }
  PendingTransfer pending{transfer, context_.resources->events.take(), last_ticket_ + 1, deadline};
  // It holds tensors, which are not to be freed in the channel's thread.
  pending.transfer.describe_shapes = nullptr;
  pending.transfer.keep = nullptr;
  pending_.push_back(pending);
  try {
    check_device(api(), api().record(pending.ready, stream), "recording an event");
    check_device(api(), api().hold(stream, flag_, pending.ticket), "waiting for a communicator");
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  } catch (...) {
    release(pending.ticket);  // the group dies of this
    throw;
  }
  ++last_ticket_;
  // After a failure nobody would release it.
  if (is_released_) release(last_ticket_);
}

void PeerChannel::run() noexcept {
  try {
    work();
  } catch (...) {
    context_.report(std::current_exception());
  }
}

void PeerChannel::work() {
  PendingTransfer pending = [this] {
    const std::lock_guard lock(mutex_);
    return pending_.front();
  }();
  const DeviceGuard guard(api(), context_.resources->device);
  const std::shared_ptr<NcclComm> comm =
      context_.make(pending.transfer, context_.wait_until(pending.deadline));
  while (true) {
    carry_out(pending, *comm);
    const std::lock_guard lock(mutex_);
    release(pending.ticket);
    context_.resources->events.give_back(pending.ready);
    pending_.pop_front();
    if (pending_.empty()) {
      comm_ = comm;
      return;
    }
    pending = pending_.front();
  }
}

void PeerChannel::carry_out(const PendingTransfer& pending, NcclComm& comm) {
  EventPool& events = context_.resources->events;
  const DeviceEvent done = events.take();
  try {
    check_device(api(), api().wait(own_stream_, pending.ready), "waiting for an event");
    const NcclWait wait = context_.wait_until(pending.deadline);
    queue_transfer(pending.transfer, comm, own_stream_, wait);
    check_device(api(), api().record(done, own_stream_), "recording an event");
    while (true) {
      const DeviceCode code = api().query(done);
      if (code == kDeviceSuccess) break;
      if (code != kDeviceNotReady) check_device(api(), code, to_string(pending.transfer.kind));
      wait.check();  // the time limit is the watchdog's
      std::this_thread::sleep_for(kPause);
    }
  } catch (...) {
    events.give_back(done);
    throw;
  }
  events.give_back(done);
}

void PeerChannel::release_all() noexcept {
  const std::lock_guard lock(mutex_);
  is_released_ = true;
  release(last_ticket_);
}

std::shared_ptr<PeerChannel> PeerChannels::at(const Collective& transfer) {
  const std::lock_guard lock(mutex_);
  if (has_ended_) {
    throw InvalidArgument(std::string(to_string(transfer.kind)) + ": the group has been shut down");
  }
  auto& channel = channels_[{transfer.kind, transfer.root}];
  if (channel == nullptr) {
    channel = std::make_shared<PeerChannel>(context_);
    if (is_released_) channel->release_all();
  }
  return channel;
}

// Under the lock: a channel must not lose its last owner here, which may be in that channel's
// thread.
void PeerChannels::release_all() noexcept {
  const std::lock_guard lock(mutex_);
  is_released_ = true;
  for (const auto& [key, channel] : channels_) channel->release_all();
}

void PeerChannels::end() {
  std::map<Key, std::shared_ptr<PeerChannel>> ended;  // goes after the lock: threads are waited for
  const std::lock_guard lock(mutex_);
  has_ended_ = true;
  ended.swap(channels_);
}

}  // namespace chainmail::ops
