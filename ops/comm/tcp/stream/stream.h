// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Frames over one non-blocking socket: what all ways of putting them on the wire have in common.
//
// Not thread-safe.

#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <optional>
#include <span>

#include "base/unique_fd.h"
#include "ops/comm/frames/frame.h"
#include "ops/comm/frames/frame_handler.h"

namespace chainmail::ops {

class TcpStream {
 public:
  virtual ~TcpStream() = default;
  TcpStream(const TcpStream&) = delete;
  TcpStream& operator=(const TcpStream&) = delete;

  int fd() const noexcept { return fd_.get(); }
  /// Bytes up to the last one of a message that the peer's machine has not confirmed: what lies in
  /// this machine's buffer or is on its way. Frames without a payload that follow do not count.
  std::size_t unacknowledged() const noexcept;
  /// Writes frames until the socket is full or there are none left; true when bytes moved.
  virtual bool write(FrameHandler& handler) = 0;
  /// Reads frames until the socket is empty or about `budget` bytes were taken; true when bytes
  /// moved. Throws StreamError at the end of the stream, on a reset or damaged bytes.
  virtual bool read(FrameHandler& handler, std::size_t budget) = 0;

  /// True while the socket was full when write() returned.
  bool is_blocked() const noexcept { return is_blocked_; }
  /// The socket has room again.
  void unblock() noexcept { is_blocked_ = false; }
  /// True when on_head() found no room.
  bool is_stalled() const noexcept { return is_stalled_; }
  /// True in the middle of a frame.
  bool is_sending() const noexcept { return out_.has_value(); }

 protected:
  explicit TcpStream(internal::UniqueFd fd) : fd_(std::move(fd)) {}

  /// Sends of `parts`, which belong to out_, what the socket takes; 0 when it is full.
  std::size_t send_parts(std::span<iovec> parts);
  /// Fills `parts` in their order with what is there; 0 when nothing is. Throws at the end.
  std::size_t receive_parts(std::span<iovec> parts);
  /// The kernel need not wake this rank before `left` bytes of a payload have come, or many.
  void batch_wakeups(std::size_t left) noexcept;

  std::optional<OutgoingFrame> out_;
  bool is_stalled_ = false;
  bool is_empty_ = false;  ///< the socket, after the last receive_parts()

 private:
  internal::UniqueFd fd_;
  bool is_blocked_ = false;
  std::size_t after_data_ = 0;  ///< bytes that were sent after the last frame with a message's
  int low_water_ = 1;           ///< bytes for which the kernel wakes this rank
};

}  // namespace chainmail::ops
