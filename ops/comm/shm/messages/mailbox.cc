// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/shm/messages/mailbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace chainmail::ops::shm {

void Mailbox::send(const std::byte* data, std::size_t bytes, int peer, std::uint32_t tag,
                   const OpContext& context) {
  Frame frame;
  frame.bytes = bytes;
  frame.tag = tag;
  frame.header = context.header.encode();
  put_all(peer, reinterpret_cast<const std::byte*>(&frame), sizeof(frame), context);
  put_all(peer, data, bytes, context);
}

void Mailbox::put_all(int peer, const std::byte* from, std::size_t bytes,
                      const OpContext& context) {
  const Segment& segment = meeting_.segment();
  RingHead& head = segment.ring_head(meeting_.rank(), peer);
  std::byte* ring = segment.ring_data(meeting_.rank(), peer);
  const std::size_t size = segment.layout().ring_bytes;
  std::uint64_t written = head.written.load(std::memory_order_relaxed);
  const auto room = [&] { return size - (written - head.read.load(std::memory_order_acquire)); };
  const auto drain_all = [this] {
    for (int rank = 0; rank < meeting_.size(); ++rank) {
      if (rank != meeting_.rank()) drain(rank);
    }
  };
  while (bytes != 0) {
    meeting_.wait_for_peer(
        peer, [&] { return room() != 0; }, context, drain_all);
    const std::size_t place = written % size;
    const std::size_t piece = std::min({bytes, room(), size - place});
    std::memcpy(ring + place, from, piece);
    written += piece;
    head.written.store(written, std::memory_order_release);
    segment.wake_sleepers();
    from += piece;
    bytes -= piece;
  }
}

std::size_t Mailbox::filled(int peer) const noexcept {
  const RingHead& head = meeting_.segment().ring_head(peer, meeting_.rank());
  return head.written.load(std::memory_order_acquire) - head.read.load(std::memory_order_relaxed);
}

std::size_t Mailbox::take(int peer, std::byte* to, std::size_t bytes) noexcept {
  const Segment& segment = meeting_.segment();
  RingHead& head = segment.ring_head(peer, meeting_.rank());
  const std::byte* ring = segment.ring_data(peer, meeting_.rank());
  const std::size_t size = segment.layout().ring_bytes;
  const std::uint64_t read = head.read.load(std::memory_order_relaxed);
  const std::size_t place = read % size;
  const std::size_t piece = std::min({bytes, filled(peer), size - place});
  if (piece == 0) return 0;
  std::memcpy(to, ring + place, piece);
  head.read.store(read + piece, std::memory_order_release);
  segment.wake_sleepers();
  return piece;
}

void Mailbox::take_all(int peer, std::byte* to, std::size_t bytes, const OpContext& context) {
  while (bytes != 0) {
    meeting_.wait_for_peer(
        peer, [this, peer] { return filled(peer) != 0; }, context);
    const std::size_t piece = take(peer, to, bytes);
    to += piece;
    bytes -= piece;
  }
}

void Mailbox::drain(int peer) {
  Inbox& inbox = inboxes_[static_cast<std::size_t>(peer)];
  for (;;) {
    if (!inbox.has_current) {
      // A head is taken as a whole; its sender writes it at once or is about to.
      if (filled(peer) < sizeof(Frame)) return;
      auto* frame = reinterpret_cast<std::byte*>(&inbox.current.frame);
      for (std::size_t got = 0; got < sizeof(Frame);) {
        got += take(peer, frame + got, sizeof(Frame) - got);
      }
      inbox.current.body.resize(inbox.current.frame.bytes);
      inbox.current.filled = 0;
      inbox.has_current = true;
    }
    Message& message = inbox.current;
    while (message.filled < message.body.size()) {
      const std::size_t piece =
          take(peer, message.body.data() + message.filled, message.body.size() - message.filled);
      if (piece == 0) return;
      message.filled += piece;
    }
    inbox.waiting.push_back(std::exchange(message, {}));
    inbox.has_current = false;
  }
}

void Mailbox::receive(std::byte* data, std::size_t bytes, int peer, std::uint32_t tag,
                      const OpContext& context) {
  Inbox& inbox = inboxes_[static_cast<std::size_t>(peer)];
  for (;;) {
    if (take_waiting(data, bytes, peer, tag, context)) return;
    if (!inbox.has_current) {
      Frame frame;
      take_all(peer, reinterpret_cast<std::byte*>(&frame), sizeof(frame), context);
      if (frame.tag == tag) {
        check(frame, bytes, peer, context);
        return take_all(peer, data, bytes, context);
      }
      inbox.current.frame = frame;
      inbox.current.body.resize(frame.bytes);
      inbox.current.filled = 0;
      inbox.has_current = true;
    }
    Message& message = inbox.current;
    take_all(peer, message.body.data() + message.filled, message.body.size() - message.filled,
             context);
    inbox.waiting.push_back(std::exchange(message, {}));
    inbox.has_current = false;
  }
}

bool Mailbox::take_waiting(std::byte* data, std::size_t bytes, int peer, std::uint32_t tag,
                           const OpContext& context) {
  auto& waiting = inboxes_[static_cast<std::size_t>(peer)].waiting;
  const auto found = std::find_if(waiting.begin(), waiting.end(), [tag](const Message& message) {
    return message.frame.tag == tag;
  });
  if (found == waiting.end()) return false;
  check(found->frame, bytes, peer, context);
  if (bytes != 0) std::memcpy(data, found->body.data(), bytes);
  waiting.erase(found);
  return true;
}

// A message and its receive are two operations, of different kind and number; what must agree is
// what is in the message.
void Mailbox::check(const Frame& frame, std::size_t bytes, int peer, const OpContext& context) {
  const auto theirs = MessageHeader::decode(frame.header);
  const bool agrees = theirs && frame.bytes == bytes && theirs->count == context.header.count &&
                      theirs->dtype == context.header.dtype &&
                      theirs->generation == context.header.generation;
  if (agrees) return;
  meeting_.fail(std::make_exception_ptr(MismatchError(
                    "ranks disagree: " + meeting_.name(peer) + " sends " +
                    (theirs ? theirs->describe() : "something unreadable") + ", " +
                    std::to_string(frame.bytes) + " bytes, tag " + std::to_string(frame.tag) +
                    "; " + meeting_.name(meeting_.rank()) + " receives " +
                    context.header.describe() + ", " + std::to_string(bytes) + " bytes")),
                context);
}

}  // namespace chainmail::ops::shm
