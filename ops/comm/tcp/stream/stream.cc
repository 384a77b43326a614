// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/stream/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/net/socket.h"

namespace chainmail::ops {
namespace {

// Of a long payload, the kernel need not wake this rank for less. Not more: the receive window
// starts at twice this.
constexpr std::size_t kBatchBytes = std::size_t{64} << 10;

StreamError stream_error(int code) {
  const bool is_silence = code == ETIMEDOUT || code == EHOSTUNREACH || code == ENETUNREACH;
  return StreamError((is_silence ? "does not answer (" : "closed the connection (") +
                         std::string(std::strerror(code)) + ")",
                     is_silence);
}

}  // namespace

std::size_t TcpStream::unacknowledged() const noexcept {
  const std::size_t bytes = internal::unacknowledged_bytes(fd_.get());
  return bytes - std::min(bytes, after_data_);
}

void TcpStream::add_part(const std::byte* data, std::size_t bytes) {
  // sendmsg does not write; iovec has no const form.
  parts_[part_end_++] = {const_cast<std::byte*>(data), bytes};
}

bool TcpStream::write(FrameHandler& handler) {
  bool has_moved = false;
  unblock();
  while (true) {
    if (part_begin_ == part_end_) {
      part_begin_ = part_end_ = 0;
      if (!add_parts(handler)) return has_moved;
    }
    if (send_parts() == 0) return has_moved;
    has_moved = true;
    const std::size_t sent = payload_sent();
    if (part_begin_ == part_end_ && sent == out_->head.length) {
      handler.frame_sent(std::exchange(out_, std::nullopt)->head);
    } else if (sent != 0) {
      handler.part_sent(out_->head, sent);
    }
  }
}

// Sends what the socket takes; 0 when it is full.
std::size_t TcpStream::send_parts() {
  msghdr message{};
  message.msg_iov = parts_.data() + part_begin_;
  message.msg_iovlen = part_end_ - part_begin_;
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN) throw stream_error(errno);
  is_blocked_ = sent < 0;
  if (is_blocked_) return 0;
  const auto bytes = static_cast<std::size_t>(sent);
  after_data_ = out_->head.type == FrameType::kData ? 0 : after_data_ + bytes;
  for (std::size_t left = bytes; left != 0;) {
    iovec& part = parts_[part_begin_];
    const std::size_t of_part = std::min(left, part.iov_len);
    part.iov_base = static_cast<std::byte*>(part.iov_base) + of_part;
    part.iov_len -= of_part;
    left -= of_part;
    if (part.iov_len == 0) ++part_begin_;
  }
  return bytes;
}

std::size_t TcpStream::receive_parts(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t got = 0;
  do {
    got = ::recvmsg(fd_.get(), &message, 0);
  } while (got < 0 && errno == EINTR);
  if (got == 0) throw StreamError("closed the connection");
  if (got < 0 && errno != EAGAIN) throw stream_error(errno);
  if (got < 0) return 0;
  std::size_t room = 0;
  for (const iovec& part : parts) room += part.iov_len;
  is_empty_ = static_cast<std::size_t>(got) < room;
  return static_cast<std::size_t>(got);
}

std::size_t TcpStream::fill() {
  if (staging_begin_ != 0) {
    std::memmove(staging_.get(), staging_.get() + staging_begin_, staging_end_ - staging_begin_);
    staging_end_ -= std::exchange(staging_begin_, 0);
  }
  return receive();
}

bool TcpStream::open_frame(FrameHandler& handler) {
  if (!in_) {
    if (!take_head()) return false;
    payload_told_ = 0;
    is_open_ = false;
  }
  if (!is_open_) {
    const auto place = handler.on_head(*in_);
    is_stalled_ = !place.has_value();
    if (is_stalled_) return false;
    payload_ = *place;
    is_open_ = true;
  }
  return true;
}

// Takes frames out of what was read; false when there is no room for the next one.
bool TcpStream::parse(FrameHandler& handler) {
  while (open_frame(handler)) {
    take_payload();
    if (wire_left() != 0) {
      const std::size_t known = payload_known();
      if (std::exchange(payload_told_, known) != known) handler.on_part(*in_, known);
      return true;
    }
    check_frame();
    is_open_ = false;
    handler.on_frame(*std::exchange(in_, std::nullopt));
  }
  return !is_stalled_;
}

bool TcpStream::read(FrameHandler& handler, std::size_t budget) {
  std::size_t taken = 0;
  // A frame that found no room is tried again before anything is read.
  if (is_stalled_ && !parse(handler)) return false;
  while (taken < budget) {
    const std::size_t bytes = fill();
    if (bytes == 0) break;
    taken += bytes;
    if (!parse(handler) || is_empty_) break;
  }
  batch_wakeups(is_open_ ? wire_left() : 0);
  return taken != 0;
}

// The kernel need not wake this rank before `left` bytes of a payload have come, or many. A wake-up
// per segment would cost a slow wire's rank a good part of its core.
void TcpStream::batch_wakeups(std::size_t left) noexcept {
  const int wanted = static_cast<int>(std::clamp<std::size_t>(left, 1, kBatchBytes));
  if (wanted == low_water_) return;
  // The kernel wakes for less when its buffer is full, and at the end of the stream.
  internal::set_low_water(fd_.get(), wanted);
  low_water_ = wanted;
}

}  // namespace chainmail::ops
