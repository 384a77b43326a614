// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/stream/sealed_stream.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace chainmail::ops {
namespace {

using internal::AesGcm;

constexpr std::size_t kSealedRecord = kRecordBytes + RecordCipher::kTagBytes;

StreamError not_sealed(const std::string& what) {
  return StreamError("sent bytes that this job did not seal (" + what +
                     "): they were changed, repeated, left out or put in on the way");
}

}  // namespace

SealedStream::SealedStream(internal::UniqueFd fd, Encryption mode, StreamKeys keys,
                           std::uint64_t records_per_key)
    : TcpStream(std::move(fd)),
      mode_(mode),
      sealer_(AesGcm::Role::kSeal, mode, std::move(keys.send), records_per_key),
      opener_(AesGcm::Role::kOpen, mode, std::move(keys.receive), records_per_key) {}

void SealedStream::seal_head() {
  const auto head = out_->head.encode();
  std::copy(head.begin(), head.end(), out_head_.begin());
  const std::span text(out_head_.data(), FrameHead::kBytes);
  sealer_.seal(text, text.data(), out_head_.data() + FrameHead::kBytes);
  add_part(out_head_.data(), out_head_.size());
  sealed_ = 0;
}

void SealedStream::seal_record() {
  const std::size_t bytes = std::min(out_->head.length - sealed_, kRecordBytes);
  const std::byte* text = out_->payload + sealed_;
  if (mode_ == Encryption::kEncrypt && !out_text_) {
    out_text_ = std::make_unique_for_overwrite<std::byte[]>(kRecordBytes);
  }
  sealer_.seal({text, bytes}, out_text_.get(), out_tag_.data());
  add_part(mode_ == Encryption::kEncrypt ? out_text_.get() : text, bytes);
  add_part(out_tag_.data(), out_tag_.size());
  sealed_ += bytes;
}

// A record at a time: the socket's buffer keeps the wire busy while the next one is sealed.
bool SealedStream::add_parts(FrameHandler& handler) {
  if (!out_) {
    out_ = handler.next_frame();
    if (!out_) return false;
    seal_head();
  }
  if (sealed_ < out_->head.length) seal_record();
  return true;
}

// What is left of a record stands in the part before its tag.
std::size_t SealedStream::payload_sent() const noexcept {
  const bool has_record = part_end_ - part_begin_ >= 2;
  return sealed_ - (has_record ? parts_[part_end_ - 2].iov_len : 0);
}

// Where the byte at `position` of the payload's records goes, and how many that follow it.
SealedStream::Place SealedStream::place_of(std::size_t position) noexcept {
  const std::size_t record = position / kSealedRecord;
  const std::size_t offset = position % kSealedRecord;
  const std::size_t begin = record * kRecordBytes;
  const std::size_t bytes = std::min(in_->length - begin, kRecordBytes);
  if (offset < bytes) return {payload_ + begin + offset, bytes - offset};
  const std::size_t of_tag = offset - bytes;
  return {in_tags_.data() + record * kTagBytes + of_tag, kTagBytes - of_tag};
}

std::size_t SealedStream::receive() {
  // With nothing staged, records go to their places and only what follows them is staged.
  std::array<iovec, 2 * kMostRecords + 1> parts{};
  std::size_t count = 0;
  std::size_t room = 0;
  if (is_open_ && staging_end_ == 0) {
    while (room < wire_left()) {
      const Place place = place_of(wire_got_ + room);
      parts[count++] = {place.data, place.bytes};
      room += place.bytes;
    }
  }
  parts[count++] = {staging_.get() + staging_end_, kStagingBytes - staging_end_};
  const std::size_t bytes = receive_parts(std::span(parts).first(count));
  const std::size_t direct = std::min(bytes, room);
  wire_got_ += direct;
  staging_end_ += bytes - direct;
  return bytes;
}

bool SealedStream::take_head() {
  if (staging_end_ - staging_begin_ < kHeadBytes) return false;
  const std::span head(staging_.get() + staging_begin_, FrameHead::kBytes);
  is_broken_ = !opener_.open(head, head.data() + head.size());
  if (is_broken_) throw not_sealed("the head of a message");
  in_ = FrameHead::decode(head);
  is_broken_ = !in_;
  if (is_broken_) throw StreamError("sent a sealed head of a message that makes no sense");
  staging_begin_ += kHeadBytes;
  wire_got_ = payload_good_ = 0;
  return true;
}

// Those that have come whole.
void SealedStream::open_records() {
  while (payload_good_ < in_->length) {
    const std::size_t bytes = std::min(in_->length - payload_good_, kRecordBytes);
    const std::size_t record = payload_good_ / kRecordBytes;
    if (wire_got_ < record * kSealedRecord + bytes + kTagBytes) return;
    is_broken_ =
        !opener_.open({payload_ + payload_good_, bytes}, in_tags_.data() + record * kTagBytes);
    if (is_broken_) {
      throw not_sealed("bytes " + std::to_string(in_->offset + payload_good_) + " to " +
                       std::to_string(in_->offset + payload_good_ + bytes) + " of a message of " +
                       std::to_string(in_->message_bytes));
    }
    payload_good_ += bytes;
  }
}

void SealedStream::take_payload() {
  while (wire_left() != 0 && staging_begin_ < staging_end_) {
    const Place place = place_of(wire_got_);
    const std::size_t take = std::min(place.bytes, staging_end_ - staging_begin_);
    std::memcpy(place.data, staging_.get() + staging_begin_, take);
    staging_begin_ += take;
    wire_got_ += take;
  }
  open_records();
}

bool SealedStream::read(FrameHandler& handler, std::size_t budget) {
  if (is_broken_) throw not_sealed("an earlier part of a message");
  return TcpStream::read(handler, budget);
}

}  // namespace chainmail::ops
