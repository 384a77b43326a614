// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Frames in records that nobody without the connection's keys can make: the head of a frame is one
// record, its payload follows in records of kRecordBytes and a shorter last one. Each has its tag
// behind it. No length travels outside of a record: what a head says is believed once the head has
// been opened, and only what has been opened is told to the handler.
//
// Payloads are received in their place and opened there; in authenticated streams they are sent
// from their place, too. Not thread-safe.

#pragma once

#include <array>
#include <cstddef>
#include <memory>

#include "base/unique_fd.h"
#include "ops/comm/tcp/stream/record_cipher.h"
#include "ops/comm/tcp/stream/stream.h"
#include "ops/comm/tcp/stream/stream_keys.h"

namespace chainmail::ops {

class SealedStream final : public TcpStream {
 public:
  /// `mode` is not kOff. `records_per_key`: equal at both ends.
  SealedStream(internal::UniqueFd fd, Encryption mode, StreamKeys keys,
               std::uint64_t records_per_key = kRecordsPerKey);

  bool read(FrameHandler& handler, std::size_t budget) override;

  static constexpr std::size_t kTagBytes = RecordCipher::kTagBytes;
  static constexpr std::size_t kHeadBytes = FrameHead::kBytes + kTagBytes;
  /// What `payload` bytes of a frame are on the wire.
  static constexpr std::size_t wire_bytes(std::size_t payload) noexcept {
    return payload + (payload + kRecordBytes - 1) / kRecordBytes * kTagBytes;
  }

 private:
  static constexpr std::size_t kMostRecords = (kMaxFramePayload + kRecordBytes - 1) / kRecordBytes;
  struct Place {
    std::byte* data;
    std::size_t bytes;
  };

  bool add_parts(FrameHandler& handler) override;
  std::size_t payload_sent() const noexcept override;
  void seal_head();
  void seal_record();

  bool take_head() override;
  std::size_t receive() override;
  void take_payload() override;
  std::size_t wire_left() const noexcept override {
    return in_ ? wire_bytes(in_->length) - wire_got_ : 0;
  }
  std::size_t payload_known() const noexcept override { return payload_good_; }
  void open_records();
  Place place_of(std::size_t position) noexcept;

  Encryption mode_;
  RecordCipher sealer_;
  RecordCipher opener_;

  // What has been sealed and not been sent: of the frame's head, one record of its payload, and the
  // tag.
  std::array<std::byte, kHeadBytes> out_head_{};
  std::array<std::byte, kTagBytes> out_tag_{};
  std::unique_ptr<std::byte[]> out_text_;  ///< of kRecordBytes, once something is encrypted
  std::size_t sealed_ = 0;                 ///< of the frame's payload

  bool is_broken_ = false;        ///< a record did not open: none after it is looked at
  std::size_t wire_got_ = 0;      ///< of the payload's records
  std::size_t payload_good_ = 0;  ///< opened
  std::array<std::byte, kMostRecords * kTagBytes> in_tags_{};
};

}  // namespace chainmail::ops
