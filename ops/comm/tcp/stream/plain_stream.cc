// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/stream/plain_stream.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/bytes.h"

namespace chainmail::ops {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{8} << 10;
// Worth a call of its own.
constexpr std::size_t kSumBytes = std::size_t{16} << 10;

}  // namespace

PlainStream::PlainStream(internal::UniqueFd fd, bool use_checksum)
    : TcpStream(std::move(fd)),
      use_checksum_(use_checksum),
      staging_(std::make_unique_for_overwrite<std::byte[]>(kStagingBytes)) {}

bool PlainStream::write(FrameHandler& handler) {
  bool has_moved = false;
  unblock();
  while (true) {
    if (!out_) {
      out_ = handler.next_frame();
      if (!out_) return has_moved;
      if (use_checksum_ && out_->head.length != 0) {
        out_->head.has_checksum = true;
        out_->head.checksum = internal::hash64({out_->payload, out_->head.length});
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
    const std::size_t sent = send_parts(std::span(parts).first(out_->head.length == 0 ? 1 : 2));
    if (sent == 0) return has_moved;
    has_moved = true;
    out_sent_ += sent;
    if (out_sent_ == FrameHead::kBytes + out_->head.length) {
      handler.frame_sent(std::exchange(out_, std::nullopt)->head);
    } else if (out_sent_ > FrameHead::kBytes) {
      handler.part_sent(out_->head, out_sent_ - FrameHead::kBytes);
    }
  }
}

std::size_t PlainStream::fill() {
  if (staging_begin_ != 0) {
    std::memmove(staging_.get(), staging_.get() + staging_begin_, staging_end_ - staging_begin_);
    staging_end_ -= std::exchange(staging_begin_, 0);
  }
  // With nothing staged, the payload goes to its place and only what follows it is staged.
  const bool is_direct = is_open_ && staging_end_ == 0 && payload_left() > 0;
  std::array<iovec, 2> parts{};
  parts[0] = {is_direct ? payload_ + payload_got_ : nullptr, is_direct ? payload_left() : 0};
  parts[1] = {staging_.get() + staging_end_, kStagingBytes - staging_end_};
  const std::size_t bytes = receive_parts(std::span(parts).subspan(is_direct ? 0 : 1));
  const std::size_t direct = std::min(bytes, parts[0].iov_len);
  payload_got_ += direct;
  staging_end_ += bytes - direct;
  return bytes;
}

bool PlainStream::open_frame(FrameHandler& handler) {
  if (!in_) {
    if (staging_end_ - staging_begin_ < FrameHead::kBytes) return false;
    in_ = FrameHead::decode({staging_.get() + staging_begin_, FrameHead::kBytes});
    if (!in_) throw StreamError("sent damaged bytes (the head of a message fails its checksum)");
    staging_begin_ += FrameHead::kBytes;
    payload_got_ = payload_summed_ = payload_told_ = 0;
    in_hash_.reset();
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
void PlainStream::sum_up() noexcept {
  const std::size_t fresh = payload_got_ - payload_summed_;
  if (!in_->has_checksum || (payload_left() != 0 && fresh < kSumBytes)) return;
  in_hash_.add({payload_ + payload_summed_, fresh});
  payload_summed_ = payload_got_;
}

void PlainStream::finish_frame(FrameHandler& handler) {
  if (in_->has_checksum && in_hash_.value() != in_->checksum) {
    throw StreamError("sent damaged bytes (checksum wrong in bytes " + std::to_string(in_->offset) +
                      " to " + std::to_string(in_->offset + in_->length) + " of a message of " +
                      std::to_string(in_->message_bytes) + ")");
  }
  is_open_ = false;
  handler.on_frame(*std::exchange(in_, std::nullopt));
}

// Takes frames out of what was read; false when more bytes are needed first.
bool PlainStream::parse(FrameHandler& handler) {
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

bool PlainStream::read(FrameHandler& handler, std::size_t budget) {
  std::size_t taken = 0;
  // A frame that found no room is tried again before anything is read.
  if (is_stalled_ && !parse(handler)) return false;
  while (taken < budget) {
    const std::size_t bytes = fill();
    if (bytes == 0) break;
    taken += bytes;
    if (!parse(handler) || is_empty_) break;
  }
  batch_wakeups(is_open_ ? payload_left() : 0);
  return taken != 0;
}

}  // namespace chainmail::ops
