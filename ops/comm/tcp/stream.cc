// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/stream.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/crc32c.h"
#include "base/socket.h"

namespace chainmail::ops {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{8} << 10;
// Of a long payload, the kernel need not wake this rank for less. Not more: the receive window
// starts at twice this.
constexpr std::size_t kBatchBytes = std::size_t{64} << 10;

// Worth a call of its own.
constexpr std::size_t kSumBytes = std::size_t{16} << 10;

StreamError stream_error(int code) {
  return StreamError(code == ETIMEDOUT || code == EHOSTUNREACH || code == ENETUNREACH
                         ? std::string("does not answer (") + std::strerror(code) + ")"
                         : std::string("closed the connection (") + std::strerror(code) + ")");
}

}  // namespace

TcpStream::TcpStream(internal::UniqueFd fd, bool use_checksum)
    : fd_(std::move(fd)),
      use_checksum_(use_checksum),
      staging_(std::make_unique_for_overwrite<std::byte[]>(kStagingBytes)) {}

bool TcpStream::write(FrameHandler& handler) {
  bool has_moved = false;
  is_blocked_ = false;
  while (true) {
    if (!out_) {
      out_ = handler.next_frame();
      if (!out_) return has_moved;
      if (use_checksum_ && out_->head.length != 0) {
        out_->head.has_checksum = true;
        out_->head.checksum = internal::crc32c({out_->payload, out_->head.length});
      }
      out_head_ = out_->head.encode();
      out_sent_ = 0;
    }
    const std::size_t head_sent = std::min(out_sent_, FrameHead::kBytes);
    const std::size_t payload_sent = out_sent_ - head_sent;
    std::array<iovec, 2> parts{};
    parts[0] = {out_head_.data() + head_sent, FrameHead::kBytes - head_sent};
    // sendmsg does not write; iovec has no const form.
    parts[1] = {const_cast<std::byte*>(out_->payload) + payload_sent,
                out_->head.length - payload_sent};
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = out_->head.length == 0 ? 1 : 2;
    const ssize_t sent = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN) throw stream_error(errno);
      is_blocked_ = true;
      return has_moved;
    }
    has_moved = true;
    out_sent_ += static_cast<std::size_t>(sent);
    const bool is_data = out_->head.type == FrameType::kData;
    after_data_ = is_data ? 0 : after_data_ + static_cast<std::size_t>(sent);
    if (out_sent_ == FrameHead::kBytes + out_->head.length) {
      handler.frame_sent(std::exchange(out_, std::nullopt)->head);
    } else if (out_sent_ > FrameHead::kBytes) {
      handler.part_sent(out_->head, out_sent_ - FrameHead::kBytes);
    }
  }
}

std::size_t TcpStream::unacknowledged() const noexcept {
  const std::size_t bytes = internal::unacknowledged_bytes(fd_.get());
  return bytes - std::min(bytes, after_data_);
}

std::size_t TcpStream::fill() {
  if (staging_begin_ != 0) {
    std::memmove(staging_.get(), staging_.get() + staging_begin_, staging_end_ - staging_begin_);
    staging_end_ -= std::exchange(staging_begin_, 0);
  }
  // With nothing staged, the payload goes to its place and only what follows it is staged.
  const bool is_direct = is_open_ && staging_end_ == 0 && payload_left() > 0;
  std::array<iovec, 2> parts{};
  parts[0] = {is_direct ? payload_ + payload_got_ : nullptr, is_direct ? payload_left() : 0};
  parts[1] = {staging_.get() + staging_end_, kStagingBytes - staging_end_};
  msghdr message{};
  message.msg_iov = is_direct ? parts.data() : parts.data() + 1;
  message.msg_iovlen = is_direct ? 2 : 1;
  ssize_t got = 0;
  do {
    got = ::recvmsg(fd_.get(), &message, 0);
  } while (got < 0 && errno == EINTR);
  if (got == 0) throw StreamError("closed the connection");
  if (got < 0) {
    if (errno == EAGAIN) return 0;
    throw stream_error(errno);
  }
  const auto bytes = static_cast<std::size_t>(got);
  is_empty_ = bytes < (is_direct ? parts[0].iov_len : 0) + parts[1].iov_len;
  const std::size_t direct = std::min(bytes, parts[0].iov_len);
  if (is_direct) payload_got_ += direct;
  staging_end_ += bytes - direct;
  return bytes;
}

bool TcpStream::open_frame(FrameHandler& handler) {
  if (!in_) {
    if (staging_end_ - staging_begin_ < FrameHead::kBytes) return false;
    in_ = FrameHead::decode({staging_.get() + staging_begin_, FrameHead::kBytes});
    if (!in_) throw StreamError("sent damaged bytes (the head of a message fails its checksum)");
    staging_begin_ += FrameHead::kBytes;
    payload_got_ = payload_summed_ = payload_told_ = 0;
    in_checksum_ = 0;
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

// What has come is summed while it is in the cache, and while the rest is on its way.
void TcpStream::sum_up() noexcept {
  const std::size_t fresh = payload_got_ - payload_summed_;
  if (!in_->has_checksum || (payload_left() != 0 && fresh < kSumBytes)) return;
  in_checksum_ = internal::crc32c({payload_ + payload_summed_, fresh}, in_checksum_);
  payload_summed_ = payload_got_;
}

void TcpStream::finish_frame(FrameHandler& handler) {
  if (in_->has_checksum && in_checksum_ != in_->checksum) {
    throw StreamError("sent damaged bytes (checksum wrong in bytes " + std::to_string(in_->offset) +
                      " to " + std::to_string(in_->offset + in_->length) + " of a message of " +
                      std::to_string(in_->message_bytes) + ")");
  }
  is_open_ = false;
  handler.on_frame(*std::exchange(in_, std::nullopt));
}

// Takes frames out of what was read; false when more bytes are needed first.
bool TcpStream::parse(FrameHandler& handler) {
  while (open_frame(handler)) {
    const std::size_t take = std::min(payload_left(), staging_end_ - staging_begin_);
    if (take != 0) {
      std::memcpy(payload_ + payload_got_, staging_.get() + staging_begin_, take);
      staging_begin_ += take;
      payload_got_ += take;
    }
    sum_up();
    if (payload_left() != 0) {
      if (std::exchange(payload_told_, payload_got_) != payload_got_) {
        handler.on_part(*in_, payload_got_);
      }
      return true;
    }
    finish_frame(handler);
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
  batch_wakeups();
  return taken != 0;
}

// A wake-up per segment would cost a slow wire's rank a good part of its core.
void TcpStream::batch_wakeups() noexcept {
  const std::size_t left = is_open_ ? payload_left() : 0;
  const int wanted = static_cast<int>(std::clamp<std::size_t>(left, 1, kBatchBytes));
  if (wanted == low_water_) return;
  // The kernel wakes for less when its buffer is full, and at the end of the stream.
  internal::set_low_water(fd_.get(), wanted);
  low_water_ = wanted;
}

}  // namespace chainmail::ops
