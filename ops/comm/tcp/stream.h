// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Frames over one non-blocking socket. Payloads go straight from and to the buffers that the
// handler names; checksums are made and checked here.
//
// Not thread-safe.

#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "base/unique_fd.h"
#include "ops/comm/frames/frame.h"
#include "ops/comm/frames/frame_handler.h"

namespace chainmail::ops {

class TcpStream {
 public:
  TcpStream(internal::UniqueFd fd, bool use_checksum);

  int fd() const noexcept { return fd_.get(); }
  /// Bytes up to the last one of a message that the peer's machine has not confirmed: what lies in
  /// this machine's buffer or is on its way. Frames without a payload that follow do not count.
  std::size_t unacknowledged() const noexcept;
  /// Writes frames until the socket is full or there are none left; true when bytes moved.
  bool write(FrameHandler& handler);
  /// Reads frames until the socket is empty or about `budget` bytes were taken; true when bytes
  /// moved. Throws StreamError at the end of the stream, on a reset or damaged bytes.
  bool read(FrameHandler& handler, std::size_t budget);

  /// True while the socket was full when write() returned.
  bool is_blocked() const noexcept { return is_blocked_; }
  /// The socket has room again.
  void unblock() noexcept { is_blocked_ = false; }
  /// True when on_head() found no room.
  bool is_stalled() const noexcept { return is_stalled_; }
  /// True in the middle of a frame.
  bool is_sending() const noexcept { return out_.has_value(); }

 private:
  bool parse(FrameHandler& handler);
  bool open_frame(FrameHandler& handler);
  void sum_up() noexcept;
  void finish_frame(FrameHandler& handler);
  std::size_t fill();
  void batch_wakeups() noexcept;
  std::size_t payload_left() const noexcept { return in_ ? in_->length - payload_got_ : 0; }

  internal::UniqueFd fd_;
  bool use_checksum_;
  bool is_blocked_ = false;
  bool is_stalled_ = false;

  std::optional<OutgoingFrame> out_;
  std::array<std::byte, FrameHead::kBytes> out_head_{};
  std::size_t out_sent_ = 0;    ///< of head and payload
  std::size_t after_data_ = 0;  ///< bytes that were sent after the last frame with a message's

  std::optional<FrameHead> in_;
  std::byte* payload_ = nullptr;
  bool is_open_ = false;  ///< payload_ is known
  std::size_t payload_got_ = 0;
  std::size_t payload_summed_ = 0;  ///< how much of it in_checksum_ covers
  std::size_t payload_told_ = 0;    ///< how much of it the handler knows of
  std::uint32_t in_checksum_ = 0;
  std::unique_ptr<std::byte[]> staging_;
  std::size_t staging_begin_ = 0;
  std::size_t staging_end_ = 0;
  bool is_empty_ = false;  ///< the socket, after the last fill()
  int low_water_ = 1;      ///< bytes for which the kernel wakes this rank
};

}  // namespace chainmail::ops
