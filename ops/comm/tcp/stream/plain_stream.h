// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Frames as they are. Payloads go straight from and to the buffers that the handler names;
// checksums are made and checked here.
//
// Not thread-safe.

#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "ops/comm/tcp/stream/stream.h"

namespace chainmail::ops {

class PlainStream final : public TcpStream {
 public:
  PlainStream(internal::UniqueFd fd, bool use_checksum);

  bool write(FrameHandler& handler) override;
  bool read(FrameHandler& handler, std::size_t budget) override;

 private:
  bool parse(FrameHandler& handler);
  bool open_frame(FrameHandler& handler);
  void sum_up() noexcept;
  void finish_frame(FrameHandler& handler);
  std::size_t fill();
  std::size_t payload_left() const noexcept { return in_ ? in_->length - payload_got_ : 0; }

  bool use_checksum_;

  std::array<std::byte, FrameHead::kBytes> out_head_{};
  std::size_t out_sent_ = 0;  ///< of head and payload

  std::optional<FrameHead> in_;
  std::byte* payload_ = nullptr;
  bool is_open_ = false;  ///< payload_ is known
  std::size_t payload_got_ = 0;
  std::size_t payload_summed_ = 0;  ///< how much of it in_hash_ covers
  std::size_t payload_told_ = 0;    ///< how much of it the handler knows of
  internal::StreamHash in_hash_;
  std::unique_ptr<std::byte[]> staging_;
  std::size_t staging_begin_ = 0;
  std::size_t staging_end_ = 0;
};

}  // namespace chainmail::ops
