// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/stream/stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/net/socket.h"

namespace chainmail::ops {
namespace {

// Of a long payload, the kernel need not wake this rank for less. Not more: the receive window
// starts at twice this.
constexpr std::size_t kBatchBytes = std::size_t{64} << 10;

StreamError stream_error(int code) {
  return StreamError(code == ETIMEDOUT || code == EHOSTUNREACH || code == ENETUNREACH
                         ? std::string("does not answer (") + std::strerror(code) + ")"
                         : std::string("closed the connection (") + std::strerror(code) + ")");
}

}  // namespace

std::size_t TcpStream::unacknowledged() const noexcept {
  const std::size_t bytes = internal::unacknowledged_bytes(fd_.get());
  return bytes - std::min(bytes, after_data_);
}

std::size_t TcpStream::send_parts(std::span<iovec> parts) {
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0 && errno != EAGAIN) throw stream_error(errno);
  is_blocked_ = sent < 0;
  if (is_blocked_) return 0;
  const auto bytes = static_cast<std::size_t>(sent);
  after_data_ = out_->head.type == FrameType::kData ? 0 : after_data_ + bytes;
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

// A wake-up per segment would cost a slow wire's rank a good part of its core.
void TcpStream::batch_wakeups(std::size_t left) noexcept {
  const int wanted = static_cast<int>(std::clamp<std::size_t>(left, 1, kBatchBytes));
  if (wanted == low_water_) return;
  // The kernel wakes for less when its buffer is full, and at the end of the stream.
  internal::set_low_water(fd_.get(), wanted);
  low_water_ = wanted;
}

}  // namespace chainmail::ops
