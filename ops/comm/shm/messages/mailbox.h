// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Point to point over rings in the shared segment, one per ordered pair of ranks: a byte stream of
// messages, each a frame head and its payload.
//
// A message for which no receive has been called waits in private memory as soon as this rank waits
// for anything here, so that two ranks may both send first, however much.

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "ops/comm/shm/meeting.h"

namespace chainmail::ops::shm {

class Mailbox {
 public:
  explicit Mailbox(Meeting& meeting)
      : meeting_(meeting), inboxes_(static_cast<std::size_t>(meeting.size())) {}

  void send(const std::byte* data, std::size_t bytes, int peer, std::uint32_t tag,
            const OpContext& context);
  void receive(std::byte* data, std::size_t bytes, int peer, std::uint32_t tag,
               const OpContext& context);

 private:
  struct Frame {
    std::uint64_t bytes = 0;
    std::uint32_t tag = 0;
    std::uint32_t unused = 0;
    std::array<std::byte, MessageHeader::kBytes> header{};
  };
  struct Message {
    Frame frame;
    std::vector<std::byte> body;
    std::size_t filled = 0;
  };
  struct Inbox {
    std::deque<Message> waiting;  ///< complete, in order of arrival
    Message current;              ///< head read, body perhaps not
    bool has_current = false;
  };

  /// Takes up to `bytes` out of the ring; returns how many.
  std::size_t take(int peer, std::byte* to, std::size_t bytes) noexcept;
  void put_all(int peer, const std::byte* from, std::size_t bytes, const OpContext& context);
  void take_all(int peer, std::byte* to, std::size_t bytes, const OpContext& context);
  std::size_t filled(int peer) const noexcept;
  /// Moves what lies in the rings to private memory.
  void drain(int peer);
  bool take_waiting(std::byte* data, std::size_t bytes, int peer, std::uint32_t tag,
                    const OpContext& context);
  void check(const Frame& frame, std::size_t bytes, int peer, const OpContext& context);

  Meeting& meeting_;
  std::vector<Inbox> inboxes_;
};

}  // namespace chainmail::ops::shm
