// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Frames through a ring in shared memory, one writer and one reader. What a socket is to TcpStream:
// frames may be longer than the ring, and go through in pieces.
//
// Not thread-safe; writer and reader may be in different processes. Neither rings a bell.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "ops/comm/frames/frame_handler.h"
#include "ops/comm/shm/memory/segment.h"

namespace chainmail::ops::shm {

class RingWriter {
 public:
  RingWriter(RingHead& head, std::byte* ring, std::size_t size);

  /// Writes frames until the ring is full or there are none left; true when bytes moved.
  bool write(FrameHandler& handler);
  bool is_sending() const noexcept { return out_.has_value(); }
  /// True when write() found the ring full and there is room now.
  bool can_go_on() const noexcept { return out_.has_value() && room() != 0; }
  /// Nothing will be written any more.
  void leave() noexcept { head_.writer.store(Presence::kLeft, std::memory_order_release); }

 private:
  std::size_t room() const noexcept;
  bool put(const std::byte* from, std::size_t bytes);
  void publish() noexcept;

  RingHead& head_;
  std::byte* ring_;
  std::size_t size_;
  std::uint64_t written_;
  std::uint64_t published_;
  std::optional<OutgoingFrame> out_;
  std::array<std::byte, FrameHead::kBytes> out_head_{};
  std::size_t out_sent_ = 0;  ///< of head and payload
};

class RingReader {
 public:
  RingReader(RingHead& head, const std::byte* ring, std::size_t size)
      : head_(head), ring_(ring), size_(size) {}

  /// Reads frames until the ring is empty or about `budget` bytes were taken; true when bytes
  /// moved. Throws StreamError for bytes that cannot be a frame.
  bool read(FrameHandler& handler, std::size_t budget);
  /// True when read() would find something new.
  bool has_data() const noexcept;
  /// True when a frame has found no room.
  bool is_stalled() const noexcept { return in_.has_value() && !is_open_; }
  /// True when the writer has left; all it wrote is in the ring by then.
  bool has_writer_left() const noexcept {
    return head_.writer.load(std::memory_order_acquire) == Presence::kLeft;
  }

 private:
  std::size_t filled() const noexcept;
  std::size_t take(std::byte* to, std::size_t bytes) noexcept;
  bool open_frame(FrameHandler& handler);

  RingHead& head_;
  const std::byte* ring_;
  std::size_t size_;
  std::optional<FrameHead> in_;
  std::byte* payload_ = nullptr;
  std::size_t payload_got_ = 0;
  bool is_open_ = false;  ///< payload_ is known
};

}  // namespace chainmail::ops::shm
