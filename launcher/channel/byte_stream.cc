// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/channel/byte_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace chainmail::launch {
namespace {

// No pipe, pty or socket holds more than this at once.
constexpr std::size_t kMaxDrainedBytes = std::size_t{1} << 20;

void make_non_blocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    throw system_error("cannot make a pipe non-blocking");
  }
}

// Where the kernel watches no more of them (ENOSPC, ENOMEM), asio's own error would be taken by
// nobody.
void watch(asio::posix::stream_descriptor& stream, internal::UniqueFd fd) {
  make_non_blocking(fd.get());
  asio::error_code error;
  stream.assign(fd.get(), error);
  if (error) throw SystemError("cannot watch a pipe: " + error.message(), error.value());
  (void)fd.release();
}

}  // namespace

ByteStream::ByteStream(asio::io_context& io, Callbacks callbacks)
    : in_(io), out_(io), callbacks_(std::move(callbacks)) {}

std::shared_ptr<ByteStream> ByteStream::make(asio::io_context& io, internal::UniqueFd in,
                                             internal::UniqueFd out, Callbacks callbacks) {
  std::shared_ptr<ByteStream> stream(new ByteStream(io, std::move(callbacks)));
  if (in.is_open()) watch(stream->in_, std::move(in));
  if (out.is_open()) watch(stream->out_, std::move(out));
  return stream;
}

void ByteStream::start() { read_some(); }

void ByteStream::read_some() {
  if (closed_ || !reading_ || waiting_to_read_ || !in_.is_open()) return;
  waiting_to_read_ = true;
  // Waiting for readiness instead of reading lets drain() and pauses take over at any time.
  in_.async_wait(asio::posix::stream_descriptor::wait_read,
                 [self = shared_from_this()](const asio::error_code& error) {
                   self->waiting_to_read_ = false;
                   if (self->closed_ || error == asio::error::operation_aborted) return;
                   if (self->reading_ && self->deliver_available()) self->read_some();
                 });
}

// One read; true when more may come.
bool ByteStream::deliver_available() {
  const ssize_t count = ::read(in_.native_handle(), buffer_.get(), kBufferBytes);
  if (count > 0) {
    callbacks_.on_bytes(std::span(buffer_.get(), static_cast<std::size_t>(count)));
    return !closed_;
  }
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  // A pty answers EIO when its last writer has gone; that is its end of file.
  end(count == 0 || errno == EIO ? kClosed : std::strerror(errno));
  return false;
}

void ByteStream::drain() {
  // Somebody else may have the other end, too, and write faster than this reads.
  std::size_t drained = 0;
  while (!closed_ && in_.is_open() && drained < kMaxDrainedBytes) {
    const ssize_t count = ::read(in_.native_handle(), buffer_.get(), kBufferBytes);
    if (count <= 0) return;
    drained += static_cast<std::size_t>(count);
    callbacks_.on_bytes(std::span(buffer_.get(), static_cast<std::size_t>(count)));
  }
}

void ByteStream::set_reading(bool reading) {
  reading_ = reading;
  if (reading) read_some();
}

void ByteStream::write(std::string bytes) { queue({nullptr, std::move(bytes), false}); }

void ByteStream::write_urgent(std::string bytes) { queue({nullptr, std::move(bytes), true}); }

void ByteStream::write_shared(std::shared_ptr<const std::string> bytes) {
  queue({std::move(bytes), {}, false});
}

void ByteStream::queue(Chunk chunk) {
  if (closed_ || chunk.bytes().empty() || !out_.is_open()) return;
  queued_bytes_ += chunk.own.size();
  const auto merges = [&] {
    const Chunk& last = queue_.back();
    return !chunk.shared && !last.shared && !last.is_urgent && last.own.size() < kBufferBytes;
  };
  if (chunk.is_urgent) {
    const auto unbegun = queue_.begin() + (written_ > 0 ? 1 : 0);
    const auto place =
        std::find_if(unbegun, queue_.end(), [](const Chunk& other) { return !other.is_urgent; });
    queue_.insert(place, std::move(chunk));
  } else if (!queue_.empty() && merges()) {
    // Small writes leave together.
    queue_.back().own += chunk.own;
  } else {
    queue_.push_back(std::move(chunk));
  }
  if (!waiting_to_write_) write_some();
}

void ByteStream::write_some() {
  while (!closed_ && !queue_.empty()) {
    const std::string& bytes = queue_.front().bytes();
    const ssize_t count =
        ::write(out_.native_handle(), bytes.data() + written_, bytes.size() - written_);
    if (count >= 0) {
      written_ += static_cast<std::size_t>(count);
      if (written_ == bytes.size()) finish_front();
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return stop_writing(std::strerror(errno));
    waiting_to_write_ = true;
    out_.async_wait(asio::posix::stream_descriptor::wait_write,
                    [self = shared_from_this()](const asio::error_code& error) {
                      self->waiting_to_write_ = false;
                      if (!self->closed_ && !error) self->write_some();
                    });
    return;
  }
  if (!closed_ && callbacks_.on_drained) callbacks_.on_drained();
}

void ByteStream::finish_front() {
  queued_bytes_ -= queue_.front().own.size();
  queue_.pop_front();
  written_ = 0;
}

void ByteStream::drop_queue() {
  queue_.clear();
  written_ = 0;
  queued_bytes_ = 0;
}

// The other side reads no more, yet what it wrote before it went may still be on its way: the
// reading direction finds the end.
void ByteStream::stop_writing(const std::string& reason) {
  if (!in_.is_open()) return end(reason);
  asio::error_code ignored;
  out_.close(ignored);
  drop_queue();
}

void ByteStream::end(const std::string& reason) {
  if (closed_) return;
  close();
  if (callbacks_.on_end) callbacks_.on_end(reason);
}

void ByteStream::close() {
  if (std::exchange(closed_, true)) return;
  asio::error_code ignored;
  in_.close(ignored);
  out_.close(ignored);
  drop_queue();
}

}  // namespace chainmail::launch
