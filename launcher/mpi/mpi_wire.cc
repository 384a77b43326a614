// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/mpi_wire.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/job/job_protocol.h"

namespace chainmail::launch {
namespace {

using internal::BodyReader;
using internal::BodyWriter;

constexpr std::size_t kPieceBytes = 256 << 10;
constexpr std::size_t kMaxMessageBytes = std::size_t{256} << 20;
constexpr std::uint8_t kLastOp = static_cast<std::uint8_t>(MpiOp::kAnswer);

[[noreturn]] void refuse(const std::string& what) {
  throw SystemError("MPI messages: " + what, EPROTO);
}

// Numbers below 2^32 only ever describe what follows, so that a wrong one ends at the body's end.
std::vector<std::uint32_t> read_numbers(BodyReader& body) {
  std::vector<std::uint32_t> numbers;
  const std::uint32_t count = body.u32();
  for (std::uint32_t i = 0; i < count; ++i) numbers.push_back(body.u32());
  return numbers;
}

void write_numbers(BodyWriter& body, const std::vector<std::uint32_t>& numbers) {
  body.u32(static_cast<std::uint32_t>(numbers.size()));
  for (const std::uint32_t number : numbers) body.u32(number);
}

}  // namespace

std::string encode_mpi(const MpiMessage& message) {
  BodyWriter body;
  body.u8(static_cast<std::uint8_t>(message.op)).u64(message.id);
  body.u32(static_cast<std::uint32_t>(message.status)).text(message.key);
  write_numbers(body, message.ranks);
  body.u32(static_cast<std::uint32_t>(message.entries.size()));
  for (const MpiEntry& entry : message.entries) {
    body.long_text(entry.key).long_text(entry.value);
  }
  body.long_text(message.data);
  return body.take();
}

MpiMessage decode_mpi(std::string_view bytes) {
  BodyReader body(bytes);
  MpiMessage message;
  const std::uint8_t op = body.u8();
  if (op == 0 || op > kLastOp) refuse("there is no operation " + std::to_string(op));
  message.op = static_cast<MpiOp>(op);
  message.id = body.u64();
  message.status = static_cast<std::int32_t>(body.u32());
  message.key = body.text();
  message.ranks = read_numbers(body);
  const std::uint32_t entries = body.u32();
  for (std::uint32_t i = 0; i < entries; ++i) {
    MpiEntry entry;
    entry.key = body.text();
    entry.value = body.text();
    message.entries.push_back(std::move(entry));
  }
  message.data = body.text();
  if (!body.at_end()) refuse("bytes after the end");
  return message;
}

void send_in_pieces(const MpiMessage& message, const std::function<void(std::string)>& send) {
  const std::string bytes = encode_mpi(message);
  for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    const bool is_last = at + kPieceBytes >= bytes.size();
    send((is_last ? '\1' : '\0') + bytes.substr(at, kPieceBytes));
  }
}

std::optional<MpiMessage> MpiPieces::add(std::string_view body) {
  if (body.empty() || body.front() < 0 || body.front() > 1) refuse("a piece without its mark");
  if (bytes_.size() + body.size() > kMaxMessageBytes) refuse("a message is longer than 256 MiB");
  bytes_ += body.substr(1);
  if (body.front() == 0) return std::nullopt;
  const std::string whole = std::exchange(bytes_, {});
  return decode_mpi(whole);
}

std::vector<std::uint32_t> MpiOrder::ranks_of(std::uint32_t node_rank) const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < node_of_rank.size(); ++rank) {
    if (node_of_rank[rank] == node_rank) ranks.push_back(rank);
  }
  return ranks;
}

std::string encode_mpi_order(const MpiOrder& order) {
  BodyWriter body;
  body.u8(static_cast<std::uint8_t>(order.mode)).text(order.name);
  body.u8(order.sends_helper ? 1 : 0).u32(order.node);
  write_numbers(body, order.node_of_rank);
  body.u32(static_cast<std::uint32_t>(order.node_names.size()));
  for (const std::string& name : order.node_names) body.text(name);
  return body.take();
}

MpiOrder decode_mpi_order(std::string_view bytes) {
  BodyReader body(bytes);
  MpiOrder order;
  const std::uint8_t mode = body.u8();
  if (mode > static_cast<std::uint8_t>(MpiMode::kPmi1)) refuse("unknown mode");
  order.mode = static_cast<MpiMode>(mode);
  order.name = body.text();
  order.sends_helper = body.u8() != 0;
  order.node = body.u32();
  order.node_of_rank = read_numbers(body);
  const std::uint32_t nodes = body.u32();
  for (std::uint32_t i = 0; i < nodes; ++i) order.node_names.push_back(body.text());
  if (!body.at_end()) refuse("bytes after the end of an order");
  return order;
}

void check_mpi_order(const MpiOrder& order) {
  const auto knows = [&](std::uint32_t node) { return node < order.node_names.size(); };
  if (order.mode != MpiMode::kNone &&
      (!knows(order.node) || order.node_of_rank.empty() || order.name.empty() ||
       !std::all_of(order.node_of_rank.begin(), order.node_of_rank.end(), knows))) {
    refuse("an order that contradicts itself");
  }
}

std::vector<std::string> mpi_node_names(const std::vector<std::string>& hosts) {
  std::vector<std::string> names;
  std::set<std::string> taken;
  for (const std::string& host : hosts) {
    std::string name;
    for (const char c : host) {
      const bool is_plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-';
      name += is_plain ? c : '-';
    }
    if (name.empty() || !taken.insert(name).second) {
      name += "-node" + std::to_string(names.size());
      taken.insert(name);
    }
    names.push_back(std::move(name));
  }
  return names;
}

}  // namespace chainmail::launch
