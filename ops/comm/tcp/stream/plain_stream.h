// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Frames as they are. Payloads go straight from and to the buffers that the handler names;
// checksums are made and checked here.
//
// Not thread-safe.

#pragma once

#include <array>
#include <cstddef>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "ops/comm/tcp/stream/stream.h"

namespace chainmail::ops {

class PlainStream final : public TcpStream {
 public:
  PlainStream(internal::UniqueFd fd, bool use_checksum);

 private:
  bool add_parts(FrameHandler& handler) override;
  std::size_t payload_sent() const noexcept override;
  bool take_head() override;
  std::size_t receive() override;
  void take_payload() override;
  std::size_t wire_left() const noexcept override { return in_ ? in_->length - payload_got_ : 0; }
  std::size_t payload_known() const noexcept override { return payload_got_; }
  void check_frame() const override;
  void sum_up() noexcept;

  bool use_checksum_;

  std::array<std::byte, FrameHead::kBytes> out_head_{};

  std::size_t payload_got_ = 0;
  std::size_t payload_summed_ = 0;  ///< how much of it in_hash_ covers
  internal::StreamHash in_hash_;
};

}  // namespace chainmail::ops
