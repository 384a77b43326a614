// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/mpi_coordinator.h"

#include <cerrno>

#include "base/bytes.h"
#include "base/error.h"

namespace chainmail::launch {
namespace {

// To so many nodes a message is sent as it is.
constexpr std::size_t kFewNodes = 2;

// What a shell keeps of it; an abort is never a success.
int code_of_abort(std::int32_t status) {
  const int code = static_cast<int>(static_cast<std::uint32_t>(status) & 255U);
  return code == 0 ? 1 : code;
}

}  // namespace

MpiCoordinator::MpiCoordinator(MpiMode mode, bool sends_helper, Agents& agents,
                               std::vector<std::uint32_t> node_of_rank, Callbacks callbacks)
    : agents_(agents),
      callbacks_(std::move(callbacks)),
      pieces_(agents.size()),
      exchange_(
          std::move(node_of_rank),
          [this](std::uint32_t node, const MpiMessage& message) { send(node, message); },
          [this](const std::set<std::uint32_t>& nodes, const MpiMessage& message) {
            send_to_all(nodes, message);
          }) {
  order_.mode = mode;
  // Known to the job's ranks only: who can say it is one of them.
  order_.name = "chainmail-" + internal::to_hex(internal::random_bytes(16));
  order_.sends_helper = sends_helper;
  std::vector<std::string> hosts;
  for (const Agents::Node& node : agents_) hosts.push_back(node.host);
  node_names_ = mpi_node_names(hosts);
}

MpiOrder MpiCoordinator::order_for(std::uint32_t node) const {
  MpiOrder order = order_;
  order.node = node;
  return order;
}

void MpiCoordinator::on_frame(std::uint32_t node, const internal::Frame& frame) {
  if (auto message = pieces_[node].add(frame.body)) handle(node, std::move(*message));
}

void MpiCoordinator::handle(std::uint32_t node, MpiMessage message) {
  if (message.op == MpiOp::kUnserved) {
    return callbacks_.fail("MPI cannot be served on host " + agents_[node].host + ": " +
                           message.data);
  }
  if (message.op == MpiOp::kWantHelper) return callbacks_.send_helper(node);
  if (message.op != MpiOp::kAbort && message.op != MpiOp::kUnfinished) {
    return exchange_.handle(node, std::move(message));
  }
  if (message.ranks.size() != 1) {
    throw SystemError("MPI messages: an end that names no rank", EPROTO);
  }
  const std::uint32_t rank = message.ranks.front();
  if (message.op == MpiOp::kUnfinished) {
    return callbacks_.fail_rank(
        node, rank, 1,
        "ended after MPI_Init without MPI_Finalize; ranks that wait for it would wait for ever");
  }
  std::string cause = "called MPI_Abort with code " + std::to_string(message.status);
  // Open MPI has no words of its own and says so.
  if (!message.data.empty() && message.data != "N/A") cause += ": " + message.data;
  callbacks_.fail_rank(node, rank, code_of_abort(message.status), cause);
}

void MpiCoordinator::send(std::uint32_t node, const MpiMessage& message) {
  send_in_pieces(
      message, [&](std::string body) { agents_.send(node, AgentMessage::kMpi, std::move(body)); });
}

void MpiCoordinator::send_to_all(const std::set<std::uint32_t>& nodes, const MpiMessage& message) {
  if (nodes.size() <= kFewNodes) {
    for (const std::uint32_t node : nodes) send(node, message);
    return;
  }
  agents_.send_shared(nodes, AgentMessage::kSharedMpi, encode_fields(message));
}

}  // namespace chainmail::launch
