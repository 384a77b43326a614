// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/job/job_protocol.h"

#include <cerrno>
#include <limits>
#include <map>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "base/job/codec.h"

namespace chainmail::internal {
namespace {

constexpr std::size_t kHeadBytes = 16;

[[noreturn]] void protocol_error(const std::string& what) {
  throw SystemError("job protocol: " + what, EPROTO);
}

std::string_view take_bytes(std::string_view& rest, std::size_t count, const char* what) {
  if (rest.size() < count) {
    protocol_error(std::string("body ends inside ") + what + " (" + std::to_string(count) +
                   " bytes wanted, " + std::to_string(rest.size()) + " left)");
  }
  const std::string_view bytes = rest.substr(0, count);
  rest.remove_prefix(count);
  return bytes;
}

// The caller has checked that `bytes` is long enough.
template <std::unsigned_integral T>
T number_at(std::string_view bytes) {
  const auto* in = reinterpret_cast<const std::byte*>(bytes.data());
  return take_number<T>(in);
}

// Welcome as bytes.
struct WelcomeBytes {
  struct Run {
    std::uint32_t node = 0;
    std::uint32_t ranks = 0;
    static void fields(auto& archive, auto& m) { archive(m.node, m.ranks); }
  };

  std::uint32_t rank = 0;
  std::string job_id;
  std::string secret;
  std::vector<Run> runs;
  std::uint32_t nodes = 0;
  std::map<std::uint32_t, std::string> addresses;
  bool is_elastic = false;
  std::uint32_t grace_ms = 0;
  static void fields(auto& archive, auto& m) {
    archive(m.rank, m.job_id, m.secret, m.runs, m.nodes, m.addresses, m.is_elastic, m.grace_ms);
  }
};

constexpr std::uint32_t kMostRanks = 1 << 20;  // a few bytes must not make a list of any length

std::vector<std::uint32_t> expand(const std::vector<WelcomeBytes::Run>& runs, std::uint32_t nodes) {
  std::vector<std::uint32_t> node_of_rank;
  for (const auto& [node, ranks] : runs) {
    if (node >= nodes) {
      protocol_error("welcome places a rank on node " + std::to_string(node) + " of " +
                     std::to_string(nodes));
    }
    if (ranks > kMostRanks - node_of_rank.size()) {
      protocol_error("welcome to a job of more than " + std::to_string(kMostRanks) + " ranks");
    }
    node_of_rank.insert(node_of_rank.end(), ranks, node);
  }
  return node_of_rank;
}

std::vector<std::string> expand(std::map<std::uint32_t, std::string> addresses,
                                std::uint32_t nodes) {
  if (nodes > kMostRanks || (!addresses.empty() && addresses.rbegin()->first >= nodes)) {
    protocol_error("welcome with addresses of more nodes than there are");
  }
  std::vector<std::string> by_node(nodes);
  for (auto& [node, text] : addresses) by_node[node] = std::move(text);
  return by_node;
}

}  // namespace

std::string encode_frame(const Frame& frame) {
  if (frame.body.size() > kMaxFrameBytes - kHeadBytes) {
    throw InvalidArgument("job protocol: a message of " + std::to_string(frame.body.size()) +
                          " bytes is longer than a frame may be (" +
                          std::to_string(kMaxFrameBytes - kHeadBytes) +
                          " bytes); store smaller values");
  }
  std::string out;
  out.reserve(kHeadBytes + frame.body.size());
  append_number(out, static_cast<std::uint32_t>(frame.body.size()));
  append_number(out, kJobProtocolVersion);
  append_number(out, static_cast<std::uint16_t>(frame.type));
  append_number(out, frame.generation);
  append_number(out, std::uint32_t{0});
  out += frame.body;
  return out;
}

void FrameReader::append(std::span<const std::byte> bytes) {
  // Moving the rest to the front only when it is the smaller part keeps the cost linear.
  if (start_ > 0 && start_ >= buffer_.size() - start_) {
    buffer_.erase(0, start_);
    start_ = 0;
  }
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::optional<Frame> FrameReader::next() {
  std::string_view rest = std::string_view(buffer_).substr(start_);
  if (rest.size() < kHeadBytes) return std::nullopt;
  const auto length = number_at<std::uint32_t>(rest);
  const auto version = number_at<std::uint16_t>(rest.substr(4));
  const auto reserved = number_at<std::uint32_t>(rest.substr(12));
  // The version comes first: another version may lay out the rest in another way.
  constexpr std::uint16_t kFarFromAnyVersion = 1000;
  if (version > kFarFromAnyVersion) {
    protocol_error(
        "what came is no message: did something else write into the connection, such "
        "as a remote shell or a start-up file that prints later?");
  }
  if (version != kJobProtocolVersion) {
    protocol_error("the other side speaks version " + std::to_string(version) + ", this one " +
                   std::to_string(kJobProtocolVersion) +
                   "; use the same release of Chainmail for launcher and program");
  }
  if (length > kMaxFrameBytes - kHeadBytes) {
    protocol_error("frame of " + std::to_string(length) + " bytes; at most " +
                   std::to_string(kMaxFrameBytes - kHeadBytes) + " are allowed");
  }
  if (reserved != 0) protocol_error("frame head with a reserved field that is not zero");
  if (rest.size() - kHeadBytes < length) return std::nullopt;
  Frame frame;
  frame.type = static_cast<JobMessage>(number_at<std::uint16_t>(rest.substr(6)));
  frame.generation = number_at<std::uint32_t>(rest.substr(8));
  frame.body = std::string(rest.substr(kHeadBytes, length));
  start_ += kHeadBytes + length;
  if (start_ == buffer_.size()) {
    buffer_.clear();
    start_ = 0;
  }
  return frame;
}

BodyWriter& BodyWriter::u8(std::uint8_t value) {
  append_number(body_, value);
  return *this;
}

BodyWriter& BodyWriter::u32(std::uint32_t value) {
  append_number(body_, value);
  return *this;
}

BodyWriter& BodyWriter::u64(std::uint64_t value) {
  append_number(body_, value);
  return *this;
}

BodyWriter& BodyWriter::i64(std::int64_t value) {
  append_number(body_, static_cast<std::uint64_t>(value));
  return *this;
}

BodyWriter& BodyWriter::text(std::string_view value) {
  if (value.size() > kMaxFrameBytes) {
    throw InvalidArgument("job protocol: text of " + std::to_string(value.size()) +
                          " bytes does not fit into a frame");
  }
  return long_text(value);
}

BodyWriter& BodyWriter::long_text(std::string_view value) {
  if (value.size() > std::numeric_limits<std::uint32_t>::max()) {
    throw InvalidArgument("job protocol: text of " + std::to_string(value.size()) +
                          " bytes; at most 4 GiB can be told");
  }
  append_number(body_, static_cast<std::uint32_t>(value.size()));
  body_ += value;
  return *this;
}

std::uint8_t BodyReader::u8() { return number_at<std::uint8_t>(take_bytes(rest_, 1, "a byte")); }

std::uint32_t BodyReader::u32() {
  return number_at<std::uint32_t>(take_bytes(rest_, 4, "a 32-bit number"));
}

std::uint64_t BodyReader::u64() {
  return number_at<std::uint64_t>(take_bytes(rest_, 8, "a 64-bit number"));
}

std::int64_t BodyReader::i64() {
  return static_cast<std::int64_t>(
      number_at<std::uint64_t>(take_bytes(rest_, 8, "a 64-bit number")));
}

std::string BodyReader::text() {
  const std::size_t length = u32();
  return std::string(take_bytes(rest_, length, "a text"));
}

std::string encode_ended(const EndedRank& ended) { return encode_fields(ended); }

std::vector<EndedRank> decode_ended(std::string_view value) {
  FieldReader body(value);
  std::vector<EndedRank> all;
  while (!body.at_end()) body(all.emplace_back());
  return all;
}

std::string encode_will(const WillBody& will) {
  FieldWriter body;
  WillBody::fields(body, will);
  return body.take();
}

WillBody decode_will(std::string_view bytes) {
  FieldReader body(bytes);
  WillBody will;
  WillBody::fields(body, will);
  if (!body.at_end()) protocol_error("will with bytes after its end");
  return will;
}

std::string encode_welcome(const Welcome& welcome) {
  WelcomeBytes bytes;
  bytes.rank = welcome.rank;
  bytes.job_id = welcome.job_id;
  bytes.secret = welcome.secret;
  for (const std::uint32_t node : welcome.node_of_rank) {
    if (bytes.runs.empty() || bytes.runs.back().node != node) bytes.runs.push_back({node, 0});
    ++bytes.runs.back().ranks;
  }
  bytes.nodes = static_cast<std::uint32_t>(welcome.addresses.size());
  for (std::uint32_t node = 0; node < bytes.nodes; ++node) {
    if (!welcome.addresses[node].empty()) bytes.addresses[node] = welcome.addresses[node];
  }
  bytes.is_elastic = welcome.is_elastic;
  bytes.grace_ms = welcome.grace_ms;
  return encode_fields(bytes);
}

Welcome decode_welcome(std::string_view body) {
  auto bytes = decode_fields<WelcomeBytes>(body, "job protocol: welcome");
  Welcome welcome;
  welcome.rank = bytes.rank;
  welcome.job_id = std::move(bytes.job_id);
  welcome.secret = std::move(bytes.secret);
  welcome.node_of_rank = expand(bytes.runs, bytes.nodes);
  welcome.addresses = expand(std::move(bytes.addresses), bytes.nodes);
  welcome.is_elastic = bytes.is_elastic;
  welcome.grace_ms = bytes.grace_ms;
  if (welcome.rank >= welcome.node_of_rank.size()) {
    protocol_error("welcome for rank " + std::to_string(welcome.rank) + " in a job of " +
                   std::to_string(welcome.node_of_rank.size()) + " ranks");
  }
  return welcome;
}

}  // namespace chainmail::internal
