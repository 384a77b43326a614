// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A sealed stream whose bytes go through the hands of somebody who changes, repeats, drops and
// exchanges them: nothing but what was sent is told to the receiver.

#include "ops/comm/tcp/stream/sealed_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"

namespace chainmail::ops {
namespace {

using internal::SecretKey;
using internal::UniqueFd;

using Bytes = std::vector<std::byte>;
constexpr std::size_t kTag = SealedStream::kTagBytes;
constexpr std::uint64_t kLimit = 5;  // the key changes in the middle
constexpr int kAttempts = 10'000;    // of each mode

struct Frame {
  FrameHead head;
  Bytes payload;
};

// One message for each length; long ones in several frames, as PeerLink sends them.
std::vector<Frame> frames_of(const std::vector<std::size_t>& lengths) {
  std::vector<Frame> frames;
  std::mt19937 random(7);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    std::size_t offset = 0;
    do {
      Frame& frame = frames.emplace_back();
      frame.head.tag = i;
      frame.head.message_bytes = lengths[i];
      frame.head.offset = offset;
      const std::size_t bytes = std::min(lengths[i] - offset, kMaxFramePayload);
      frame.head.length = static_cast<std::uint32_t>(bytes);
      frame.payload.resize(bytes);
      for (std::byte& byte : frame.payload) byte = static_cast<std::byte>(random());
      offset += bytes;
    } while (offset < lengths[i]);
  }
  return frames;
}

class Source final : public FrameHandler {
 public:
  explicit Source(const std::vector<Frame>& frames) : frames_(frames) {}
  std::optional<std::byte*> on_head(const FrameHead& /*head*/) override { return nullptr; }
  void on_part(const FrameHead& /*head*/, std::size_t /*bytes*/) override {}
  void on_frame(const FrameHead& /*head*/) override {}
  std::optional<OutgoingFrame> next_frame() override {
    if (sent_ == frames_.size()) return std::nullopt;
    part_ = 0;
    return OutgoingFrame{frames_[sent_].head, frames_[sent_].payload.data()};
  }
  void part_sent(const FrameHead& head, std::size_t bytes) override {
    EXPECT_GE(bytes, part_);
    EXPECT_LE(bytes, head.length);
    part_ = bytes;
  }
  void frame_sent(const FrameHead& /*head*/) override { ++sent_; }
  std::size_t sent() const { return sent_; }

 private:
  const std::vector<Frame>& frames_;
  std::size_t sent_ = 0;
  std::size_t part_ = 0;
};

// Believes nothing: whatever it is told must be what was sent at that point.
class Sink final : public FrameHandler {
 public:
  explicit Sink(const std::vector<Frame>& frames) : frames_(frames) {}
  std::optional<std::byte*> on_head(const FrameHead& head) override {
    if (refusals_ > 0) {
      --refusals_;
      return std::nullopt;
    }
    is_genuine_ = is_genuine_ && is_next(head);
    place_.assign(head.length, std::byte{0xee});
    told_ = 0;
    return place_.data();
  }
  void on_part(const FrameHead& head, std::size_t bytes) override {
    is_genuine_ = is_genuine_ && is_next(head) && bytes >= told_ && bytes <= head.length &&
                  std::memcmp(place_.data(), frames_[got_].payload.data(), bytes) == 0;
    told_ = bytes;
    ++parts_;
  }
  void on_frame(const FrameHead& head) override {
    is_genuine_ = is_genuine_ && is_next(head) && place_ == frames_[got_].payload;
    ++got_;
  }
  std::optional<OutgoingFrame> next_frame() override { return std::nullopt; }
  void part_sent(const FrameHead& /*head*/, std::size_t /*bytes*/) override {}
  void frame_sent(const FrameHead& /*head*/) override {}

  bool is_genuine() const { return is_genuine_; }
  bool has_all() const { return got_ == frames_.size(); }
  std::size_t got() const { return got_; }
  int parts() const { return parts_; }
  void refuse_heads(int count) { refusals_ = count; }

 private:
  bool is_next(const FrameHead& head) const {
    return got_ < frames_.size() && head.encode() == frames_[got_].head.encode();
  }
  const std::vector<Frame>& frames_;
  Bytes place_;
  std::size_t got_ = 0;
  std::size_t told_ = 0;
  int parts_ = 0;
  int refusals_ = 0;
  bool is_genuine_ = true;
};

struct Pipe {
  UniqueFd near;
  UniqueFd far;
};

Pipe open_pipe() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    throw system_error("socketpair");
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

SecretKey key_of(const std::string& name) {
  return internal::hkdf_extract({}, std::as_bytes(std::span(name)));
}

// What `connection` carries from end `from` to end `to`.
StreamKeys keys_of(const std::string& connection, const std::string& from, const std::string& to) {
  return {key_of(connection + from + to), key_of(connection + to + from)};
}

void take_all(int fd, Bytes& wire) {
  std::byte buffer[4096];
  for (ssize_t got = 0; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;) {
    wire.insert(wire.end(), buffer, buffer + got);
  }
}

// All that a sender with these keys puts on the wire.
Bytes capture(Encryption mode, StreamKeys keys, const std::vector<Frame>& frames) {
  Pipe pipe = open_pipe();
  SealedStream stream(std::move(pipe.near), mode, std::move(keys), kLimit);
  Source source(frames);
  Bytes wire;
  while (source.sent() < frames.size()) {
    stream.write(source);
    take_all(pipe.far.get(), wire);
  }
  take_all(pipe.far.get(), wire);
  return wire;
}

enum class End { kRefused, kClosed };

// Feeds `wire` to a receiver in pieces, then ends the connection.
End deliver(Encryption mode, const Bytes& wire, Sink& sink, std::mt19937& random) {
  Pipe pipe = open_pipe();
  SealedStream stream(std::move(pipe.near), mode, keys_of("1", "b", "a"), kLimit);
  try {
    for (std::size_t sent = 0; sent < wire.size();) {
      const std::size_t most = std::size_t{1} << random() % 18;
      const auto n = ::send(pipe.far.get(), wire.data() + sent, std::min(most, wire.size() - sent),
                            MSG_NOSIGNAL);
      if (n > 0) sent += static_cast<std::size_t>(n);
      while (stream.read(sink, std::size_t{1} << 20)) continue;
    }
    pipe.far.reset();
    while (stream.read(sink, std::size_t{1} << 20)) continue;
    throw std::logic_error("the end of the stream was not noticed");
  } catch (const StreamError& error) {
    const std::string text = error.what();
    return text.find("did not seal") != std::string::npos ? End::kRefused : End::kClosed;
  }
}

struct Range {
  std::size_t begin;
  std::size_t end;
  std::size_t size() const { return end - begin; }
};

std::vector<Range> records_of(const std::vector<Frame>& frames) {
  std::vector<Range> records;
  std::size_t at = 0;
  const auto add = [&](std::size_t bytes) {
    records.push_back({at, at + bytes + kTag});
    at += bytes + kTag;
  };
  for (const Frame& frame : frames) {
    add(FrameHead::kBytes);
    for (std::size_t done = 0; done < frame.payload.size(); done += kRecordBytes) {
      add(std::min(frame.payload.size() - done, kRecordBytes));
    }
  }
  return records;
}

// Somebody with the bytes of this connection, of its other direction, and of another connection
// between the same ranks that carries the same.
class MiddleMan {
 public:
  MiddleMan(Encryption mode, const std::vector<Frame>& frames)
      : records_(records_of(frames)),
        wire_(capture(mode, keys_of("1", "a", "b"), frames)),
        others_{capture(mode, keys_of("1", "b", "a"), frames),
                capture(mode, keys_of("2", "a", "b"), frames)} {}

  static constexpr int kKinds = 9;
  const Bytes& wire() const { return wire_; }
  const std::vector<Range>& records() const { return records_; }

  // Always something else than wire().
  Bytes tampered(int kind, std::mt19937& random) const {
    Bytes wire = wire_;
    const std::size_t n = random() % records_.size();
    const Range record = records_[n];
    const auto at = [](Bytes& bytes, std::size_t i) {
      return bytes.begin() + static_cast<std::ptrdiff_t>(i);
    };
    const auto bytes_of = [&](const Bytes& from, Range range) {
      return Bytes(from.begin() + static_cast<std::ptrdiff_t>(range.begin),
                   from.begin() + static_cast<std::ptrdiff_t>(range.end));
    };
    switch (kind) {
      case 0: {  // a bit of the text or of the tag
        const bool is_tag = random() % 3 == 0;
        const std::size_t text = record.size() - kTag;
        const std::size_t where = is_tag || text == 0 ? text + random() % kTag : random() % text;
        wire[record.begin + where] ^= static_cast<std::byte>(1U << random() % 8);
        break;
      }
      case 1:  // cut off
        wire.resize(random() % wire.size());
        break;
      case 2:  // a record is missing
        wire.erase(at(wire, record.begin), at(wire, record.end));
        break;
      case 3: {  // a record comes again, at once or later
        const Bytes again = bytes_of(wire_, record);
        const Range before = records_[n + random() % (records_.size() - n)];
        wire.insert(at(wire, before.end), again.begin(), again.end());
        break;
      }
      case 4: {  // two records change places
        const Range other = records_[(n + 1 + random() % (records_.size() - 1)) % records_.size()];
        const Range first = std::min(record, other, by_begin);
        const Range second = std::max(record, other, by_begin);
        const Bytes early = bytes_of(wire_, first);
        const Bytes late = bytes_of(wire_, second);
        wire.erase(at(wire, second.begin), at(wire, second.end));
        wire.insert(at(wire, second.begin), early.begin(), early.end());
        wire.erase(at(wire, first.begin), at(wire, first.end));
        wire.insert(at(wire, first.begin), late.begin(), late.end());
        break;
      }
      case 5: {  // a record of the other direction, or of another connection
        const Bytes& other = others_[random() % 2];
        std::copy_n(other.begin() + static_cast<std::ptrdiff_t>(record.begin), record.size(),
                    at(wire, record.begin));
        break;
      }
      case 6: {  // some bytes are missing, anywhere
        const std::size_t begin = random() % wire.size();
        const std::size_t end = std::min(wire.size(), begin + 1 + random() % 200);
        wire.erase(at(wire, begin), at(wire, end));
        break;
      }
      case 7: {  // some are put in, before the last record: nobody reads behind it
        Bytes more(1 + random() % 200);
        for (std::byte& byte : more) byte = static_cast<std::byte>(random());
        wire.insert(at(wire, random() % records_.back().end), more.begin(), more.end());
        break;
      }
      default: {  // all from a record on comes from another connection
        const Bytes& other = others_[random() % 2];
        std::copy(other.begin() + static_cast<std::ptrdiff_t>(record.begin), other.end(),
                  at(wire, record.begin));
        break;
      }
    }
    return wire;
  }

 private:
  static bool by_begin(const Range& a, const Range& b) { return a.begin < b.begin; }

  std::vector<Range> records_;
  Bytes wire_;
  std::vector<Bytes> others_;
};

const std::vector<std::size_t> kLengths = {0, 1, 100, kRecordBytes, kRecordBytes + 1000, 5, 300};

class SealedStreamTest : public testing::TestWithParam<Encryption> {
 protected:
  std::mt19937 random_{20'240};
};

TEST_P(SealedStreamTest, WhatIsSentArrivesHoweverItIsCutUp) {
  const auto frames = frames_of({0, 1, kRecordBytes - 1, kRecordBytes, kRecordBytes + 1,
                                 kMaxFramePayload, 3 * kMaxFramePayload + 777, 17, 0});
  const MiddleMan man(GetParam(), frames);
  EXPECT_EQ(man.wire().size(), man.records().back().end);
  for (int round = 0; round < 50; ++round) {
    Sink sink(frames);
    sink.refuse_heads(round % 3);
    ASSERT_EQ(deliver(GetParam(), man.wire(), sink, random_), End::kClosed);
    ASSERT_TRUE(sink.is_genuine());
    ASSERT_TRUE(sink.has_all());
    EXPECT_GT(sink.parts(), 0);
  }
}

TEST_P(SealedStreamTest, NothingThatWasTamperedWithIsAccepted) {
  const auto frames = frames_of(kLengths);
  const MiddleMan man(GetParam(), frames);
  int accepted = 0;
  std::vector<int> refused(MiddleMan::kKinds);
  std::vector<int> closed(MiddleMan::kKinds);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int kind = attempt % MiddleMan::kKinds;
    const Bytes wire = man.tampered(kind, random_);
    ASSERT_NE(wire, man.wire());
    Sink sink(frames);
    const End end = deliver(GetParam(), wire, sink, random_);
    // A few bytes behind all that was sent are waited with for more, and told to nobody.
    const bool is_longer = wire.size() > man.wire().size() &&
                           std::equal(man.wire().begin(), man.wire().end(), wire.begin());
    const bool is_whole = sink.has_all() && end == End::kClosed && !is_longer;
    if (is_whole || !sink.is_genuine()) ++accepted;
    ++(end == End::kRefused ? refused : closed)[static_cast<std::size_t>(kind)];
  }
  EXPECT_EQ(accepted, 0);
  // Bytes that are not there cannot be told from a connection that ends; all others can.
  for (const int kind : {0, 4, 5, 8}) EXPECT_EQ(closed[static_cast<std::size_t>(kind)], 0) << kind;
  EXPECT_EQ(refused[1], 0);
  RecordProperty("attempts", kAttempts);
  RecordProperty("accepted", accepted);
}

TEST_P(SealedStreamTest, EveryBitOfARecordCounts) {
  const auto frames = frames_of({24});
  const MiddleMan man(GetParam(), frames);
  for (std::size_t bit = 0; bit < 8 * man.wire().size(); ++bit) {
    Bytes wire = man.wire();
    wire[bit / 8] ^= static_cast<std::byte>(1U << bit % 8);
    Sink sink(frames);
    ASSERT_EQ(deliver(GetParam(), wire, sink, random_), End::kRefused) << bit;
    ASSERT_TRUE(sink.is_genuine()) << bit;
    ASSERT_EQ(sink.got(), 0U);
  }
}

TEST_P(SealedStreamTest, NothingIsReadAfterARecordThatDidNotOpen) {
  const auto frames = frames_of({24, 24});
  const MiddleMan man(GetParam(), frames);
  Pipe pipe = open_pipe();
  SealedStream stream(std::move(pipe.near), GetParam(), keys_of("1", "b", "a"), kLimit);
  Bytes wire = man.wire();
  wire[man.records()[1].begin] ^= std::byte{1};
  ASSERT_EQ(::send(pipe.far.get(), wire.data(), wire.size(), 0), static_cast<ssize_t>(wire.size()));
  Sink sink(frames);
  for (int i = 0; i < 3; ++i) EXPECT_THROW(stream.read(sink, 1 << 20), StreamError);
  EXPECT_EQ(sink.got(), 0U);
}

TEST_P(SealedStreamTest, TheTextIsOnTheWireOnlyWhereItIsNotEncrypted) {
  const auto frames = frames_of({kRecordBytes + 1000});
  const MiddleMan man(GetParam(), frames);
  const Bytes& payload = frames.front().payload;
  int seen = 0;
  for (std::size_t i = 0; i + 16 <= payload.size(); i += 16) {
    const auto piece = payload.begin() + static_cast<std::ptrdiff_t>(i);
    seen +=
        std::search(man.wire().begin(), man.wire().end(), piece, piece + 16) != man.wire().end();
    if (i > 16 * 200) break;
  }
  EXPECT_EQ(seen > 0, GetParam() == Encryption::kAuthenticate);
}

INSTANTIATE_TEST_SUITE_P(Modes, SealedStreamTest,
                         testing::Values(Encryption::kAuthenticate, Encryption::kEncrypt),
                         [](const auto& of) { return std::string(to_string(of.param)); });

}  // namespace
}  // namespace chainmail::ops
