// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Bytes both ways between an Asio loop and a pair of pipes or a socket, with a queue for what
// waits to be written: what is urgent goes ahead of it, and what several streams write alike stands
// in memory once.
//
// One thread: all calls and callbacks belong to the io_context's thread. A callback may close the
// stream; it must not destroy it.

#pragma once

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/unique_fd.h"

namespace chainmail::launch {

/// The reason of an end that is none: the other side has closed.
inline constexpr char kClosed[] = "closed";

/// Where frames come from and go to: pipes of this process, or a tunnel through another one.
class ByteTransport {
 public:
  virtual ~ByteTransport() = default;
  /// From here on callbacks come.
  virtual void start() = 0;
  /// Queues bytes; never blocks. Dropped after close().
  virtual void write(std::string bytes) = 0;
  /// The same, ahead of all writes that have not begun yet, but not of earlier urgent ones. Both
  /// sides must find whole messages in each write.
  virtual void write_urgent(std::string bytes) = 0;
  [[nodiscard]] virtual std::size_t queued_bytes() const noexcept = 0;
  /// Closes both directions; no callback comes afterwards.
  virtual void close() = 0;
  [[nodiscard]] virtual bool is_open() const noexcept = 0;
};

class ByteStream : public ByteTransport, public std::enable_shared_from_this<ByteStream> {
 public:
  struct Callbacks {
    std::function<void(std::span<const std::byte>)> on_bytes = {};
    /// Once, when the other side has closed or failed; not after close().
    std::function<void(const std::string& reason)> on_end = {};
    /// After a write when the queue has become empty.
    std::function<void()> on_drained = {};
  };

  /// `in` and `out` may be duplicates of one socket; either may be missing. Throws SystemError.
  static std::shared_ptr<ByteStream> make(asio::io_context& io, internal::UniqueFd in,
                                          internal::UniqueFd out, Callbacks callbacks);

  void start() override;
  void write(std::string bytes) override;
  void write_urgent(std::string bytes) override;
  /// Bytes that others hold as well; they do not count as queued.
  void write_shared(std::shared_ptr<const std::string> bytes);
  std::size_t queued_bytes() const noexcept override { return queued_bytes_; }
  /// Stops and resumes reading; the kernel's buffer then slows the sender down.
  void set_reading(bool reading);
  /// Reads what is there already, without waiting; what comes meanwhile only up to 1 MiB in all.
  void drain();
  void close() override;
  bool is_open() const noexcept override { return !closed_; }

 private:
  static constexpr std::size_t kBufferBytes = 65536;

  struct Chunk {
    std::shared_ptr<const std::string> shared;  // null: own
    std::string own;
    bool is_urgent = false;
    const std::string& bytes() const noexcept { return shared ? *shared : own; }
  };

  ByteStream(asio::io_context& io, Callbacks callbacks);
  void read_some();
  bool deliver_available();
  void queue(Chunk chunk);
  void write_some();
  void finish_front();
  void drop_queue();
  void stop_writing(const std::string& reason);
  void end(const std::string& reason);

  asio::posix::stream_descriptor in_;
  asio::posix::stream_descriptor out_;
  Callbacks callbacks_;
  // Not initialised: pages that are never touched cost nothing, and most streams carry little.
  std::unique_ptr<std::byte[]> buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBufferBytes);
  std::deque<Chunk> queue_;
  std::size_t written_ = 0;       // of the first
  std::size_t queued_bytes_ = 0;  // of chunks of its own
  bool reading_ = true;
  bool waiting_to_read_ = false;
  bool waiting_to_write_ = false;
  bool closed_ = false;
};

}  // namespace chainmail::launch
