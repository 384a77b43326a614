// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the launcher says once to each node, or once to all, and the agent tells its ranks.

#include <cerrno>

#include "base/error.h"
#include "launcher/agent/agent.h"

namespace chainmail::launch {

using internal::BodyReader;
using internal::Frame;
using internal::JobMessage;

void Agent::on_spread(const Frame& frame) {
  const AgentMessage type = type_of(frame);
  if (type == AgentMessage::kSharedPart || type == AgentMessage::kSharedDrop) {
    return shared_.on_frame(frame);
  }
  if (type == AgentMessage::kNews) return tell_ranks(frame);
  const std::uint32_t number = BodyReader(frame.body).u32();
  if (type == AgentMessage::kTable) {
    table_ = decode_table(shared_.text(number));
  } else if (type == AgentMessage::kWelcomeRank) {
    welcome(number);
  } else if (mpi_) {
    mpi_->handle(decode_mpi(shared_.text(number)));
  }
}

void Agent::welcome(std::uint32_t rank) {
  RankStreams* streams = streams_of(rank);
  if (streams == nullptr) return;
  if (!table_ || rank >= table_->welcome.node_of_rank.size()) {
    throw SystemError("agent protocol: a welcome that no table goes with", EPROTO);
  }
  internal::Welcome welcome = table_->welcome;
  welcome.rank = rank;
  streams->write_job(internal::encode_frame(
      {JobMessage::kWelcome, order_.generation, internal::encode_welcome(welcome)}));
}

void Agent::tell_ranks(const Frame& frame) {
  BodyReader body(frame.body);
  const auto type = static_cast<JobMessage>(static_cast<std::uint16_t>(body.u32()));
  const std::uint32_t except = body.u32();
  const std::string bytes = internal::encode_frame({type, order_.generation, body.text()});
  for (const Rank& rank : ranks_) {
    if (rank.number != except && rank.streams) rank.streams->write_job(bytes);
  }
}

MpiOrder Agent::complete_mpi_order() const {
  MpiOrder order = decode_mpi_order(order_.mpi);
  if (table_) {
    order.node_of_rank = table_->welcome.node_of_rank;
    order.node_names = table_->mpi_node_names;
  }
  check_mpi_order(order);
  return order;
}

}  // namespace chainmail::launch
