// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/ops/fuzz/sealed_stream_target.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "base/error.h"
#include "ops/comm/frames/peer_link.h"
#include "ops/comm/tcp/stream/sealed_stream.h"

namespace chainmail::ops {
namespace {

using internal::AesGcm;
using internal::SecretKey;
using internal::UniqueFd;

constexpr std::uint64_t kRecordsPerFuzzedKey = 3;

SecretKey key_of(std::string_view name) {
  return internal::hkdf_extract({}, std::as_bytes(std::span(name)));
}

// Hands on to the link what is told, as long as something may be.
class Watched final : public FrameHandler {
 public:
  explicit Watched(PeerLink& link) : link_(link) {}
  void forge() noexcept { is_forged_ = true; }

  std::optional<std::byte*> on_head(const FrameHead& head) override {
    check();
    return link_.on_head(head);
  }
  void on_part(const FrameHead& head, std::size_t bytes) override {
    check();
    if (bytes > head.length) throw std::logic_error("more was told than the frame has");
    link_.on_part(head, bytes);
  }
  void on_frame(const FrameHead& head) override {
    check();
    link_.on_frame(head);
  }
  std::optional<OutgoingFrame> next_frame() override { return link_.next_frame(); }
  void part_sent(const FrameHead& head, std::size_t bytes) override {
    link_.part_sent(head, bytes);
  }
  void frame_sent(const FrameHead& head) override { link_.frame_sent(head); }

 private:
  // What was sealed before has been read by then.
  void check() const {
    if (is_forged_) throw std::logic_error("something was told after bytes that were not sealed");
  }
  PeerLink& link_;
  bool is_forged_ = false;
};

class Play {
 public:
  explicit Play(std::string_view bytes) : bytes_(bytes) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      throw system_error("socketpair");
    }
    peer_ = UniqueFd(ends[1]);
    mode_ = next() % 2 == 0 ? Encryption::kEncrypt : Encryption::kAuthenticate;
    sealer_.emplace(AesGcm::Role::kSeal, mode_, key_of("to us"), kRecordsPerFuzzedKey);
    stream_.emplace(UniqueFd(ends[0]), mode_, StreamKeys{key_of("from us"), key_of("to us")},
                    kRecordsPerFuzzedKey);
    for (std::size_t i = 0; i < receives_.size(); ++i) {
      memory_[i].resize(i * 70'000 + 9);
      receives_[i].tag = Tag::point_to_point(static_cast<std::uint32_t>(i));
      receives_[i].bytes = memory_[i].size();
      receives_[i].data = memory_[i].data();
      link_.post(receives_[i]);
    }
  }

  void run() {
    try {
      while (!bytes_.empty()) step();
      read();
      peer_.reset();
      read();
    } catch (const StreamError&) {
    } catch (const Error&) {
    }
  }

 private:
  std::uint8_t next() {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<std::uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte;
  }
  std::string_view take(std::size_t most) {
    const std::string_view taken = bytes_.substr(0, most);
    bytes_.remove_prefix(taken.size());
    return taken;
  }

  void step() {
    switch (next() % 6) {
      case 0:
        return forge();
      case 1:
        return send_head();
      case 2:
        return send_record(next() * std::size_t{257});
      case 3:
        return send_record(next());
      case 4:
        return write_some();
      default:
        read();
    }
  }

  // All that came before is read, then nothing is believed any more.
  void forge() {
    const std::string_view noise = take(1 + next());
    if (noise.empty()) return;
    read();
    handler_.forge();
    send(std::string(noise));
    read();
  }

  void send_head() {
    FrameHead head;
    head.type = static_cast<FrameType>(1 + next() % 9);
    const std::uint8_t place = next();
    head.tag = Tag::point_to_point(place % 4);
    head.message_bytes = place % 4 * 70'000U + 9;
    if ((place & 0x80) != 0) head.message_bytes = std::uint64_t{next()} << next() % 64;
    head.offset = (place & 0x40) != 0 ? std::uint64_t{next()} << next() % 64 : 0;
    head.length = static_cast<std::uint32_t>(
        (place & 0x20) != 0 ? std::uint64_t{next()} << next() % 24
                            : std::min<std::uint64_t>(head.message_bytes, kMaxFramePayload));
    auto bytes = head.encode();
    if ((place & 0x10) != 0) bytes[next() % bytes.size()] ^= static_cast<std::byte>(next());
    seal({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    length_ = head.length;
    // The payload as a peer in order would send it, or left to later steps.
    if ((place & 0x08) != 0) return;
    for (std::size_t sent = 0; sent < length_ && length_ <= kMaxFramePayload;
         sent += kRecordBytes) {
      send_record(std::min(length_ - sent, kRecordBytes));
    }
  }

  void send_record(std::size_t bytes) { seal(std::string(std::max<std::size_t>(bytes, 1), 'x')); }

  void seal(const std::string& text) {
    const std::span plain(reinterpret_cast<const std::byte*>(text.data()), text.size());
    std::string record(text.size() + RecordCipher::kTagBytes, '\0');
    auto* out = reinterpret_cast<std::byte*>(record.data());
    std::copy(plain.begin(), plain.end(), out);
    sealer_->seal(plain, out, out + text.size());
    send(record);
  }

  // A full socket is read from in between.
  void send(const std::string& bytes) {
    for (std::size_t sent = 0; sent < bytes.size();) {
      const auto n = ::send(peer_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n > 0) {
        sent += static_cast<std::size_t>(n);
      } else if (!read()) {
        return;  // stalled: the rank takes no more
      }
    }
  }

  bool read() {
    bool has_moved = false;
    while (stream_->read(handler_, 1 << 20)) has_moved = true;
    return has_moved;
  }

  void write_some() {
    stream_->write(handler_);
    std::array<char, 4096> sink{};
    while (::recv(peer_.get(), sink.data(), sink.size(), 0) > 0) continue;
  }

  std::string_view bytes_;
  const PeerName self_{0, "here"};
  const PeerName other_{1, "there"};
  CallLog log_;
  TransportCounters counters_;
  PeerLink link_{self_, other_, log_, counters_, nullptr};
  Watched handler_{link_};
  std::array<std::vector<std::byte>, 4> memory_;
  std::array<Receive, 4> receives_;
  UniqueFd peer_;
  Encryption mode_ = Encryption::kEncrypt;
  std::optional<RecordCipher> sealer_;
  std::optional<SealedStream> stream_;
  std::size_t length_ = 0;
};

}  // namespace

void run_sealed_stream(std::string_view bytes) { Play(bytes).run(); }

std::vector<std::string> sealed_stream_seeds() {
  // A message for each of the receives; one whose payload is of the wrong length; a goodbye and a
  // head with a wrong bit; noise at once and in the middle of a payload.
  const std::string all{1, 0, 0, 1, 0, 1, 1, 0, 2, 1, 0, 3, 5};
  const std::string wrong{1, 0, 9, 2, 100, 5, 3, 7, 5};
  const std::string noise{0, 20, 'n', 'o', 'i', 's', 'e'};
  const std::string goodbye{1, 4, 0x28, 0, 0, 5};
  const std::string flipped{1, 0, 0x10, 9, 1, 5};
  const std::string encrypted(1, '\0');
  const std::string authenticated(1, '\1');
  return {encrypted + all,
          authenticated + all,
          encrypted + wrong + noise,
          encrypted + noise,
          authenticated + noise,
          encrypted + all + goodbye + flipped,
          authenticated + all + flipped};
}

}  // namespace chainmail::ops
