// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Between those who carry frames (sockets, shared memory) and those who know what they mean.
//
// Not thread-safe.

#pragma once

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

#include "ops/comm/frames/frame.h"

namespace chainmail::ops {

struct OutgoingFrame {
  FrameHead head;
  const std::byte* payload = nullptr;  ///< must stay until frame_sent()
};

class FrameHandler {
 public:
  virtual ~FrameHandler() = default;
  /// Where the payload of a frame goes; nothing when there is no room for it now (retried later).
  virtual std::optional<std::byte*> on_head(const FrameHead& head) = 0;
  /// More of the payload is there: `bytes` of it now. All of it is when on_frame() is called.
  virtual void on_part(const FrameHead& head, std::size_t bytes) = 0;
  /// The payload is there and its checksum is right.
  virtual void on_frame(const FrameHead& head) = 0;
  /// The next frame to send, nothing when there is none.
  virtual std::optional<OutgoingFrame> next_frame() = 0;
  /// More of the payload has gone: `bytes` of it by now. All of it has when frame_sent() is called.
  virtual void part_sent(const FrameHead& head, std::size_t bytes) = 0;
  virtual void frame_sent(const FrameHead& head) = 0;
};

/// The connection is of no use any more; what() says why.
class StreamError : public std::runtime_error {
 public:
  explicit StreamError(const std::string& why, bool is_silence = false)
      : std::runtime_error(why), is_silence_(is_silence) {}
  /// The peer has not answered for long, or its machine cannot be reached.
  bool is_silence() const noexcept { return is_silence_; }

 private:
  bool is_silence_;
};

}  // namespace chainmail::ops
