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

// Worth a call of its own.
constexpr std::size_t kSumBytes = std::size_t{16} << 10;

}  // namespace

PlainStream::PlainStream(internal::UniqueFd fd, bool use_checksum)
    : TcpStream(std::move(fd)), use_checksum_(use_checksum) {}

bool PlainStream::add_parts(FrameHandler& handler) {
  out_ = handler.next_frame();
  if (!out_) return false;
  if (use_checksum_ && out_->head.length != 0) {
    out_->head.has_checksum = true;
    out_->head.checksum = internal::hash64({out_->payload, out_->head.length});
  }
  out_head_ = out_->head.encode();
  add_part(out_head_.data(), out_head_.size());
  if (out_->head.length != 0) add_part(out_->payload, out_->head.length);
  return true;
}

// What is left of it stands behind the head.
std::size_t PlainStream::payload_sent() const noexcept {
  const bool has_payload = part_begin_ < part_end_ && part_end_ == 2;
  return out_->head.length - (has_payload ? parts_[1].iov_len : 0);
}

std::size_t PlainStream::receive() {
  // With nothing staged, the payload goes to its place and only what follows it is staged.
  const bool is_direct = is_open_ && staging_end_ == 0 && wire_left() > 0;
  std::array<iovec, 2> parts{};
  parts[0] = {is_direct ? payload_ + payload_got_ : nullptr, is_direct ? wire_left() : 0};
  parts[1] = {staging_.get() + staging_end_, kStagingBytes - staging_end_};
  const std::size_t bytes = receive_parts(std::span(parts).subspan(is_direct ? 0 : 1));
  const std::size_t direct = std::min(bytes, parts[0].iov_len);
  payload_got_ += direct;
  staging_end_ += bytes - direct;
  return bytes;
}

bool PlainStream::take_head() {
  if (staging_end_ - staging_begin_ < FrameHead::kBytes) return false;
  in_ = FrameHead::decode({staging_.get() + staging_begin_, FrameHead::kBytes});
  if (!in_) throw StreamError("sent damaged bytes (the head of a message fails its checksum)");
  staging_begin_ += FrameHead::kBytes;
  payload_got_ = payload_summed_ = 0;
  in_hash_.reset();
  return true;
}

// What has come is summed while it is in the cache, and while the rest is on its way.
void PlainStream::sum_up() noexcept {
  const std::size_t fresh = payload_got_ - payload_summed_;
  if (!in_->has_checksum || (wire_left() != 0 && fresh < kSumBytes)) return;
  in_hash_.add({payload_ + payload_summed_, fresh});
  payload_summed_ = payload_got_;
}

void PlainStream::check_frame() const {
  if (in_->has_checksum && in_hash_.value() != in_->checksum) {
    throw StreamError("sent damaged bytes (checksum wrong in bytes " + std::to_string(in_->offset) +
                      " to " + std::to_string(in_->offset + in_->length) + " of a message of " +
                      std::to_string(in_->message_bytes) + ")");
  }
}

void PlainStream::take_payload() {
  const std::size_t take = std::min(wire_left(), staging_end_ - staging_begin_);
  if (take != 0) {
    std::memcpy(payload_ + payload_got_, staging_.get() + staging_begin_, take);
    staging_begin_ += take;
    payload_got_ += take;
  }
  sum_up();
}

}  // namespace chainmail::ops
