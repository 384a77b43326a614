// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Frames over one non-blocking socket: what all ways of putting them on the wire have in common.
//
// Not thread-safe.

#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <memory>
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
  bool write(FrameHandler& handler);
  /// Reads frames until the socket is empty or about `budget` bytes were taken; true when bytes
  /// moved. Throws StreamError at the end of the stream, on a reset or damaged bytes.
  virtual bool read(FrameHandler& handler, std::size_t budget);

  /// True while the socket was full when write() returned.
  bool is_blocked() const noexcept { return is_blocked_; }
  /// The socket has room again.
  void unblock() noexcept { is_blocked_ = false; }
  /// True when on_head() found no room.
  bool is_stalled() const noexcept { return is_stalled_; }
  /// True in the middle of a frame.
  bool is_sending() const noexcept { return out_.has_value(); }

 protected:
  static constexpr std::size_t kStagingBytes = std::size_t{8} << 10;

  explicit TcpStream(internal::UniqueFd fd)
      : staging_(std::make_unique_for_overwrite<std::byte[]>(kStagingBytes)), fd_(std::move(fd)) {}

  /// Adds what is to be sent next, of out_ or else of the handler's next frame; false when there is
  /// none.
  virtual bool add_parts(FrameHandler& handler) = 0;
  void add_part(const std::byte* data, std::size_t bytes);
  /// Of out_'s payload.
  virtual std::size_t payload_sent() const noexcept = 0;

  /// Fills `parts` in their order with what is there; 0 when nothing is. Throws at the end.
  std::size_t receive_parts(std::span<iovec> parts);

  /// Takes in_ from what is staged and begins its payload; false when there is not enough.
  virtual bool take_head() = 0;
  /// Receives once, in place where a frame is open and nothing staged, else to the staging memory.
  virtual std::size_t receive() = 0;
  /// Moves what is staged of the frame's payload to its place, and checks what can be.
  virtual void take_payload() = 0;
  /// Bytes on the wire that the open frame lacks.
  virtual std::size_t wire_left() const noexcept = 0;
  /// Of the open frame's payload, what the handler may know of.
  virtual std::size_t payload_known() const noexcept = 0;
  /// Throws StreamError for a frame that has come whole and is damaged.
  virtual void check_frame() const {}

  std::optional<OutgoingFrame> out_;
  std::array<iovec, 3> parts_{};  ///< of out_: what is being sent, from part_begin_ to part_end_
  std::size_t part_begin_ = 0;
  std::size_t part_end_ = 0;

  std::optional<FrameHead> in_;
  std::byte* payload_ = nullptr;
  bool is_open_ = false;  ///< payload_ is known
  const std::unique_ptr<std::byte[]> staging_;
  std::size_t staging_begin_ = 0;
  std::size_t staging_end_ = 0;

 private:
  std::size_t send_parts();
  bool parse(FrameHandler& handler);
  bool open_frame(FrameHandler& handler);
  std::size_t fill();
  void batch_wakeups(std::size_t left) noexcept;

  internal::UniqueFd fd_;
  bool is_blocked_ = false;
  std::size_t after_data_ = 0;  ///< bytes that were sent after the last frame with a message's
  int low_water_ = 1;           ///< bytes for which the kernel wakes this rank
  bool is_stalled_ = false;
  bool is_empty_ = false;         ///< the socket, after the last receive_parts()
  std::size_t payload_told_ = 0;  ///< how much of the payload the handler knows of
};

}  // namespace chainmail::ops
