// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/mpi_wire.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <set>
#include <utility>

#include "base/error.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kPieceBytes = 256 << 10;
constexpr std::size_t kMaxMessageBytes = std::size_t{256} << 20;
constexpr std::uint8_t kLastOp = static_cast<std::uint8_t>(MpiOp::kAnswer);

[[noreturn]] void refuse(const std::string& what) {
  throw SystemError("MPI messages: " + what, EPROTO);
}

}  // namespace

MpiMessage decode_mpi(std::string_view bytes) {
  auto message = decode_fields<MpiMessage>(bytes, "MPI messages");
  const auto op = static_cast<std::uint8_t>(message.op);
  if (op == 0 || op > kLastOp) refuse("there is no operation " + std::to_string(op));
  return message;
}

void send_in_pieces(const MpiMessage& message, const std::function<void(std::string)>& send) {
  const std::string bytes = encode_fields(message);
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

MpiOrder decode_mpi_order(std::string_view bytes) {
  auto order = decode_fields<MpiOrder>(bytes, "MPI messages");
  if (order.mode > MpiMode::kPmi1) refuse("unknown mode");
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
