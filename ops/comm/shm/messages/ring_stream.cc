// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/shm/messages/ring_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace chainmail::ops::shm {
namespace {

// The reader may begin with a long frame while the rest is being written.
constexpr std::size_t kPiece = std::size_t{32} << 10;

}  // namespace

RingWriter::RingWriter(RingHead& head, std::byte* ring, std::size_t size)
    : head_(head),
      ring_(ring),
      size_(size),
      written_(head.written.load(std::memory_order_relaxed)),
      published_(written_) {
  head_.writer.store(Presence::kJoined, std::memory_order_release);
}

std::size_t RingWriter::room() const noexcept {
  return size_ - (written_ - head_.read.load(std::memory_order_acquire));
}

void RingWriter::publish() noexcept {
  published_ = written_;
  head_.written.store(written_, std::memory_order_release);
}

/// True when all of it found room.
bool RingWriter::put(const std::byte* from, std::size_t bytes) {
  while (bytes != 0) {
    const std::size_t place = written_ % size_;
    const std::size_t piece = std::min({bytes, room(), size_ - place, kPiece});
    if (piece == 0) return false;
    std::memcpy(ring_ + place, from, piece);
    written_ += piece;
    out_sent_ += piece;
    from += piece;
    bytes -= piece;
    if (written_ - published_ >= kPiece) publish();
  }
  return true;
}

bool RingWriter::write(FrameHandler& handler) {
  const std::uint64_t before = written_;
  while (true) {
    if (!out_) {
      out_ = handler.next_frame();
      if (!out_) break;
      out_head_ = out_->head.encode();
      out_sent_ = 0;
    }
    const std::size_t head_sent = std::min(out_sent_, FrameHead::kBytes);
    const std::size_t payload_sent = out_sent_ - head_sent;
    if (!put(out_head_.data() + head_sent, FrameHead::kBytes - head_sent) ||
        (out_->head.length != 0 &&
         !put(out_->payload + payload_sent, out_->head.length - payload_sent))) {
      if (out_sent_ > FrameHead::kBytes + payload_sent) {
        handler.part_sent(out_->head, out_sent_ - FrameHead::kBytes);
      }
      break;
    }
    handler.frame_sent(std::exchange(out_, std::nullopt)->head);
  }
  if (written_ != published_) publish();
  return written_ != before;
}

std::size_t RingReader::filled() const noexcept {
  return head_.written.load(std::memory_order_acquire) - head_.read.load(std::memory_order_relaxed);
}

bool RingReader::has_data() const noexcept {
  if (is_stalled()) return false;
  // A head is taken as a whole; its writer writes it at once or is about to.
  return filled() >= (in_ ? 1 : FrameHead::kBytes);
}

std::size_t RingReader::take(std::byte* to, std::size_t bytes) noexcept {
  const std::uint64_t read = head_.read.load(std::memory_order_relaxed);
  const std::size_t place = read % size_;
  const std::size_t piece = std::min({bytes, filled(), size_ - place});
  if (piece == 0) return 0;
  std::memcpy(to, ring_ + place, piece);
  head_.read.store(read + piece, std::memory_order_release);
  return piece;
}

bool RingReader::open_frame(FrameHandler& handler) {
  if (!in_) {
    if (filled() < FrameHead::kBytes) return false;
    std::array<std::byte, FrameHead::kBytes> head;
    for (std::size_t got = 0; got < head.size();) got += take(head.data() + got, head.size() - got);
    in_ = FrameHead::decode(head);
    if (!in_) throw StreamError("wrote damaged bytes (the head of a message fails its checksum)");
    payload_got_ = 0;
    is_open_ = false;
  }
  if (is_open_) return true;
  const auto place = handler.on_head(*in_);
  if (!place) return false;
  payload_ = *place;
  is_open_ = true;
  return true;
}

bool RingReader::read(FrameHandler& handler, std::size_t budget) {
  const std::uint64_t before = head_.read.load(std::memory_order_relaxed);
  const auto taken = [&] { return head_.read.load(std::memory_order_relaxed) - before; };
  while (taken() < budget && open_frame(handler)) {
    const std::size_t known = payload_got_;
    while (payload_got_ < in_->length) {
      const std::size_t piece = take(payload_ + payload_got_, in_->length - payload_got_);
      if (piece == 0) {
        if (payload_got_ != known) handler.on_part(*in_, payload_got_);
        return taken() != 0;
      }
      payload_got_ += piece;
    }
    is_open_ = false;
    handler.on_frame(*std::exchange(in_, std::nullopt));
  }
  return taken() != 0;
}

}  // namespace chainmail::ops::shm
