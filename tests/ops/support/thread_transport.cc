// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/ops/support/thread_transport.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "ops/comm/call_log.h"

namespace chainmail::ops {

ThreadHub::ThreadHub(int size, std::vector<PeerName> names) : names_(std::move(names)) {
  if (size < 1) throw InvalidArgument("a ThreadHub of " + std::to_string(size) + " ranks");
  for (int rank = static_cast<int>(names_.size()); rank < size; ++rank) {
    names_.push_back(PeerName{rank, "thread"});
  }
  for (int rank = 0; rank < size; ++rank) mailboxes_.push_back(std::make_unique<Mailbox>());
  has_left_.resize(static_cast<std::size_t>(size));
}

void ThreadHub::notify(int rank) noexcept {
  Mailbox& box = *mailboxes_[static_cast<std::size_t>(rank)];
  {
    const std::lock_guard lock(box.mutex);
    ++box.events;
  }
  box.changed.notify_all();
}

void ThreadHub::notify_all() noexcept {
  for (std::size_t rank = 0; rank < mailboxes_.size(); ++rank) notify(static_cast<int>(rank));
}

ThreadTransport::ThreadTransport(std::shared_ptr<ThreadHub> hub, int rank)
    : hub_(std::move(hub)), rank_(rank) {
  if (rank < 0 || rank >= size()) {
    throw InvalidArgument("rank " + std::to_string(rank) + " of a ThreadHub of " +
                          std::to_string(size()) + " ranks");
  }
}

ThreadTransport::~ThreadTransport() {
  forget_transfers();
  {
    const std::lock_guard lock(hub_->mutex_);
    hub_->has_left_[static_cast<std::size_t>(rank_)] = true;
    hub_->has_news_ = true;
  }
  hub_->notify_all();
}

const PeerName& ThreadTransport::name(int peer) const {
  return hub_->names_.at(static_cast<std::size_t>(peer));
}

ThreadHub::Mailbox& ThreadTransport::mailbox(int rank) const {
  return *hub_->mailboxes_.at(static_cast<std::size_t>(rank));
}

void ThreadTransport::begin(std::uint64_t position, const MessageHeader& header) {
  const std::lock_guard lock(hub_->mutex_);
  const auto [call, is_first] = hub_->calls_.try_emplace(position);
  if (is_first) call->second = ThreadHub::Call{rank_, header, 0};
  if (!call->second.header.matches(header)) {
    throw mismatch_error(name(call->second.rank), call->second.header, name(rank_), header);
  }
  if (++call->second.ranks_come == size()) hub_->calls_.erase(call);
}

void ThreadTransport::deliver(Receive& receive, int receiver, const MessageHeader& header,
                              const std::byte* data, std::size_t bytes) const {
  if (!headers_agree(receive.tag, receive.header, header)) {
    throw mismatch_error(name(receive.peer), header, name(receiver), receive.header);
  }
  if (receive.bytes != bytes) {
    throw length_error(name(receiver), receive.bytes, name(receive.peer), bytes, header);
  }
  if (bytes != 0) std::memcpy(receive.data, data, bytes);
  receive.flags = header.flags;
  receive.is_done.store(true, std::memory_order_release);
}

void ThreadTransport::post(Send& send) {
  ThreadHub::Mailbox& box = mailbox(send.peer);
  ++counters_.messages_sent;
  counters_.payload_bytes_sent += send.bytes;
  ++counters_.moves;
  counters_.moved_bytes += send.bytes;
  {
    const std::lock_guard lock(box.mutex);
    const auto match = std::find_if(
        box.receives.begin(), box.receives.end(),
        [&](const Receive* receive) { return receive->tag == send.tag && receive->peer == rank_; });
    if (match != box.receives.end()) {
      deliver(**match, send.peer, send.header, send.data, send.bytes);
      box.receives.erase(match);
      send.is_done.store(true, std::memory_order_release);
    } else {
      ThreadHub::Early early{rank_, send.tag, send.header, nullptr, send.bytes, &send};
      // What is longer, or too much, stays where it is: back-pressure on the sender.
      constexpr std::size_t kMaxEarlyBytes = 128 * kEagerBytes;
      if (send.bytes <= kEagerBytes && box.early_bytes + send.bytes <= kMaxEarlyBytes) {
        early.copy = std::make_unique_for_overwrite<std::byte[]>(send.bytes);
        if (send.bytes != 0) std::memcpy(early.copy.get(), send.data, send.bytes);
        early.send = nullptr;
        box.early_bytes += send.bytes;
        send.is_done.store(true, std::memory_order_release);
      }
      box.early.push_back(std::move(early));
    }
    ++box.events;
  }
  box.changed.notify_all();
}

void ThreadTransport::post(Receive& receive) {
  ThreadHub::Mailbox& box = mailbox(rank_);
  Send* finished = nullptr;
  {
    const std::lock_guard lock(box.mutex);
    const auto match =
        std::find_if(box.early.begin(), box.early.end(), [&](const ThreadHub::Early& early) {
          return early.tag == receive.tag && early.sender == receive.peer;
        });
    if (match == box.early.end()) {
      box.receives.push_back(&receive);
    } else {
      const std::byte* data = match->send != nullptr ? match->send->data : match->copy.get();
      deliver(receive, rank_, match->header, data, match->bytes);
      finished = match->send;
      if (finished == nullptr) box.early_bytes -= match->bytes;
      if (finished != nullptr) finished->is_done.store(true, std::memory_order_release);
      box.early.erase(match);
    }
  }
  ++counters_.messages_received;
  counters_.payload_bytes_received += receive.bytes;
  ++counters_.moves;
  counters_.moved_bytes += receive.bytes;
  if (finished != nullptr) hub_->notify(receive.peer);
}

// Calls are compared in begin(), where every rank passes: there is nothing to ask.
void ThreadTransport::inquire(const Transfer& /*transfer*/) {}

bool ThreadTransport::has_message(int peer, std::uint64_t tag) const {
  ThreadHub::Mailbox& box = mailbox(rank_);
  const std::lock_guard lock(box.mutex);
  return std::any_of(box.early.begin(), box.early.end(), [&](const ThreadHub::Early& early) {
    return early.sender == peer && early.tag == tag;
  });
}

PeerState ThreadTransport::state(int peer) const {
  const std::lock_guard lock(hub_->mutex_);
  return hub_->has_left_[static_cast<std::size_t>(peer)] ? PeerState::kLeft : PeerState::kConnected;
}

void ThreadTransport::check_peers() {
  ThreadHub::Mailbox& box = mailbox(rank_);
  std::vector<bool> has_left;
  {
    const std::lock_guard lock(hub_->mutex_);
    if (hub_->error_ != nullptr) std::rethrow_exception(hub_->error_);
    has_left = hub_->has_left_;
  }
  const auto gone = [&](int peer, const MessageHeader& header) {
    return PeerError(name(peer).describe() + " closed the connection during " + header.describe(),
                     name(peer).rank);
  };
  {
    const std::lock_guard lock(box.mutex);
    for (const Receive* receive : box.receives) {
      if (has_left[static_cast<std::size_t>(receive->peer)]) {
        throw gone(receive->peer, receive->header);
      }
    }
  }
  for (int peer = 0; peer < size(); ++peer) {
    if (!has_left[static_cast<std::size_t>(peer)]) continue;
    const std::lock_guard lock(mailbox(peer).mutex);
    for (const ThreadHub::Early& early : mailbox(peer).early) {
      if (early.sender == rank_ && early.send != nullptr) throw gone(peer, early.header);
    }
  }
}

bool ThreadTransport::progress() {
  if (hub_->has_news_.load(std::memory_order_acquire)) check_peers();
  ThreadHub::Mailbox& box = mailbox(rank_);
  const std::lock_guard lock(box.mutex);
  return std::exchange(seen_events_, box.events) != box.events;
}

void ThreadTransport::wait(std::chrono::microseconds timeout) {
  ThreadHub::Mailbox& box = mailbox(rank_);
  std::unique_lock lock(box.mutex);
  box.changed.wait_until(lock, std::chrono::steady_clock::now() + timeout,
                         [&] { return box.events != seen_events_; });
}

void ThreadTransport::forget_transfers() noexcept {
  for (const auto& box : hub_->mailboxes_) {
    const std::lock_guard lock(box->mutex);
    box->early.remove_if([&](const ThreadHub::Early& early) {
      return early.sender == rank_ && early.send != nullptr;
    });
  }
  ThreadHub::Mailbox& own = mailbox(rank_);
  const std::lock_guard lock(own.mutex);
  own.receives.clear();
}

void ThreadTransport::fail(const std::exception_ptr& error) noexcept {
  forget_transfers();
  {
    const std::lock_guard lock(hub_->mutex_);
    if (hub_->error_ == nullptr) hub_->error_ = error;
    hub_->has_news_ = true;
  }
  hub_->notify_all();
}

}  // namespace chainmail::ops
