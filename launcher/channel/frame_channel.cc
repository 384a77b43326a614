// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/channel/frame_channel.h"

#include "base/error.h"

namespace chainmail::launch {

namespace {

constexpr std::size_t kMaxNoiseBytes = std::size_t{1} << 20;

// The marker stands on the command line, which a verbose shell may print; this does not.
std::string spoken(const std::string& marker) { return "<" + marker + ">\n"; }

}  // namespace

FrameChannel::FrameChannel(asio::io_context& io, internal::UniqueFd in, internal::UniqueFd out,
                           const std::string& marker, Callbacks callbacks)
    : FrameChannel(
          [&](ByteStream::Callbacks on_stream) {
            return ByteStream::make(io, std::move(in), std::move(out), std::move(on_stream));
          },
          marker, std::move(callbacks)) {}

FrameChannel::FrameChannel(const Connect& connect, const std::string& marker, Callbacks callbacks)
    : callbacks_(std::move(callbacks)),
      spoken_marker_(marker.empty() ? std::string() : spoken(marker)),
      heard_(std::chrono::steady_clock::now()) {
  ByteStream::Callbacks on_stream;
  on_stream.on_bytes = [this](std::span<const std::byte> bytes) { receive(bytes); };
  on_stream.on_end = [this](const std::string& reason) { callbacks_.on_end(reason); };
  on_stream.on_drained = [this] {
    if (callbacks_.on_drained) callbacks_.on_drained();
  };
  stream_ = connect(std::move(on_stream));
  stream_->start();
}

FrameChannel::~FrameChannel() { stream_->close(); }

void FrameChannel::send(AgentMessage type, std::string body) {
  stream_->write(internal::encode_frame(make_frame(type, std::move(body))));
}

void FrameChannel::send_urgent(AgentMessage type, std::string body) {
  stream_->write_urgent(internal::encode_frame(make_frame(type, std::move(body))));
}

void FrameChannel::send_marker(const std::string& marker) { stream_->write(spoken(marker)); }

std::chrono::milliseconds FrameChannel::silence() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                               heard_);
}

void FrameChannel::close() { stream_->close(); }

void FrameChannel::receive(std::span<const std::byte> bytes) {
  heard_ = std::chrono::steady_clock::now();
  if (!spoken_marker_.empty()) {
    if (!skip_to_marker(bytes)) return;
  } else {
    reader_.append(bytes);
  }
  try {
    while (is_open()) {
      const auto frame = reader_.next();
      if (!frame) break;
      callbacks_.on_frame(*frame);
    }
  } catch (const Error& error) {
    fail(error.what());
  }
}

// True once the marker has been seen; what follows it is in the reader.
bool FrameChannel::skip_to_marker(std::span<const std::byte> bytes) {
  noise_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t found = noise_.find(spoken_marker_);
  if (found == std::string::npos) {
    if (callbacks_.on_noise) callbacks_.on_noise(noise_);
    if (noise_.size() > kMaxNoiseBytes) fail("more than 1 MiB of output before the agent spoke");
    return false;
  }
  const std::string_view rest = std::string_view(noise_).substr(found + spoken_marker_.size());
  reader_.append(std::as_bytes(std::span(rest.data(), rest.size())));
  noise_.clear();
  spoken_marker_.clear();
  return true;
}

void FrameChannel::fail(const std::string& reason) {
  if (!is_open()) return;
  stream_->close();
  callbacks_.on_end(reason);
}

}  // namespace chainmail::launch
