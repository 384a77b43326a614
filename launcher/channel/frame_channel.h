// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Frames over a ByteStream, after a marker that separates them from whatever a login shell may
// print first.
//
// One thread, like ByteStream.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/channel/byte_stream.h"
#include "launcher/channel/wire.h"

namespace chainmail::launch {

/// Each side sends a heartbeat this often, and gives the other up after a lease of silence.
inline constexpr std::chrono::milliseconds kHeartbeatInterval{1000};
/// Silence is longer than the outage behind it: the heartbeat before may be an interval old, and
/// TCP, which doubles the time between its tries, may come back only when the link has been there
/// for as long as it was away. So this outlasts 3 s without a link.
inline constexpr std::chrono::milliseconds kDefaultLease{8000};
/// Of a process of the same machine that is alive and not stopped it shows only how busy that is:
/// it is given up after so many.
inline constexpr int kLeasesOfOneMachine = 8;

/// Tells a silent peer from a process that was itself held up (stopped, starved): call
/// was_late() once per heartbeat.
class LagDetector {
 public:
  bool was_late() {
    const auto now = std::chrono::steady_clock::now();
    const auto since = now - std::exchange(last_, now);
    return since > 2 * kHeartbeatInterval;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

class FrameChannel {
 public:
  struct Callbacks {
    std::function<void(const internal::Frame&)> on_frame;
    /// Once; the other side closed, failed or spoke nonsense.
    std::function<void(const std::string& reason)> on_end;
    std::function<void()> on_drained;
    /// All that came before the marker so far, each time that more has come.
    std::function<void(std::string_view noise)> on_noise;
  };

  /// Makes the bytes' way to the other side; not started yet.
  using Connect = std::function<std::shared_ptr<ByteTransport>(ByteStream::Callbacks)>;

  /// With a `marker`, all bytes up to and including what send_marker() of the other side writes are
  /// skipped (at most 1 MiB).
  FrameChannel(const Connect& connect, const std::string& marker, Callbacks callbacks);
  FrameChannel(asio::io_context& io, internal::UniqueFd in, internal::UniqueFd out,
               const std::string& marker, Callbacks callbacks);
  ~FrameChannel();
  FrameChannel(const FrameChannel&) = delete;
  FrameChannel& operator=(const FrameChannel&) = delete;

  void send(AgentMessage type, std::string body);
  /// Ahead of what waits to be written.
  void send_urgent(AgentMessage type, std::string body);
  void send_marker(const std::string& marker);
  /// Bytes that are no frame, for what runs on the other side before an agent does; or several
  /// frames at once.
  void send_raw(std::string bytes) { stream_->write(std::move(bytes)); }
  std::size_t queued_bytes() const noexcept { return stream_->queued_bytes(); }
  /// Time since anything was received.
  std::chrono::milliseconds silence() const;
  bool is_open() const noexcept { return stream_->is_open(); }
  void close();

 private:
  void receive(std::span<const std::byte> bytes);
  bool skip_to_marker(std::span<const std::byte> bytes);
  void fail(const std::string& reason);

  Callbacks callbacks_;
  std::string spoken_marker_;
  std::string noise_;
  internal::FrameReader reader_;
  std::chrono::steady_clock::time_point heard_;
  std::shared_ptr<ByteTransport> stream_;
};

}  // namespace chainmail::launch
