// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What concerns all nodes or all ranks. News go once to each node, whose agent tells its ranks;
// what is long goes once over each connection (launcher/tree/shared_texts.h), so that what this
// process sends grows with the number of hosts and not with its square.

#include <algorithm>
#include <iterator>
#include <optional>
#include <vector>

#include "launcher/controller/controller.h"

namespace chainmail::launch {
namespace {

using internal::BodyWriter;
using internal::JobMessage;

// To so many nodes a message is sent as it is.
constexpr std::size_t kFewNodes = 2;
// Of failures before the verdict, each of which goes to every node: enough to end whatever waits.
constexpr int kMostFailuresTold = 64;
// Longer news would travel in pieces, between which urgent messages may come.
constexpr std::size_t kMostNewsBytes = std::size_t{192} << 10;

}  // namespace

// `nodes` and those that carry them.
std::vector<std::uint32_t> Controller::way_to(const std::set<std::uint32_t>& nodes) const {
  std::vector<bool> is_on_way(nodes_.size(), false);
  for (const std::uint32_t node : nodes) {
    std::optional<std::uint32_t> at = node;
    while (at && !is_on_way[*at]) {
      is_on_way[*at] = true;
      at = nodes_[*at].carrier;
    }
  }
  std::vector<std::uint32_t> way;
  std::copy_if(from_above_.begin(), from_above_.end(), std::back_inserter(way),
               [&](std::uint32_t node) { return is_on_way[node]; });
  return way;
}

// Under the number that is returned, until drop_shared(). Carriers stand before whom they carry.
std::uint32_t Controller::share(const std::string& text, const std::vector<std::uint32_t>& way) {
  const std::uint32_t number = next_shared_++;
  const SharedFrames frames = cut_shared(number, text);
  for (const std::uint32_t node : way) {
    if (nodes_[node].link) nodes_[node].link->send_shared(number, frames);
  }
  return number;
}

void Controller::drop_shared(std::uint32_t number, const std::vector<std::uint32_t>& way) {
  for (const std::uint32_t node : way) {
    if (!nodes_[node].link) continue;
    nodes_[node].link->send(AgentMessage::kSharedDrop, BodyWriter().u32(number).text("").take());
  }
}

// Every node has said hello by now, and is reached as it will be from here on.
void Controller::send_table() {
  from_above_.clear();
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    if (!nodes_[node].carrier) from_above_.push_back(node);
  }
  for (std::size_t at = 0; at < from_above_.size(); ++at) {
    const auto& carried = nodes_[from_above_[at]].carried;
    from_above_.insert(from_above_.end(), carried.begin(), carried.end());
  }
  JobTable table;
  table.welcome.job_id = job_id_;
  table.welcome.secret = secret_;
  for (const Rank& rank : ranks_) table.welcome.node_of_rank.push_back(rank.node);
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    table.welcome.hosts.push_back(placement_.nodes[node].name);
    table.welcome.addresses.push_back(nodes_[node].link->hello()->addresses);
  }
  table.mpi_node_names = mpi_order_.node_names;
  const std::uint32_t number = share(encode_table(table), from_above_);
  for (const std::uint32_t node : from_above_) {
    nodes_[node].link->send(AgentMessage::kTable, BodyWriter().u32(number).take());
  }
  drop_shared(number, from_above_);
}

void Controller::send_welcome(std::uint32_t rank) {
  has_listeners_ = true;
  const Node& node = nodes_[ranks_[rank].node];
  if (node.link) node.link->send(AgentMessage::kWelcomeRank, BodyWriter().u32(rank).take());
}

void Controller::tell_ranks(JobMessage type, std::uint32_t except, const std::string& body) {
  // Whatever fails after the verdict is its consequence, and everybody has heard of the cause.
  if (is_reported_ || body.size() > kMostNewsBytes) return;
  const bool is_failure = type == JobMessage::kNewsRankLost || type == JobMessage::kNewsGroupFailed;
  if (is_failure && ++failures_told_ > kMostFailuresTold) return;
  const std::string news =
      BodyWriter().u32(static_cast<std::uint32_t>(type)).u32(except).text(body).take();
  for (const Node& node : nodes_) {
    if (node.link && !node.all_exited) node.link->send(AgentMessage::kNews, news);
  }
}

void Controller::send_mpi(std::uint32_t node, const MpiMessage& message) {
  send_in_pieces(message, [&](std::string body) {
    if (nodes_[node].link) nodes_[node].link->send(AgentMessage::kMpi, std::move(body));
  });
}

void Controller::send_mpi_to_all(const std::set<std::uint32_t>& nodes, const MpiMessage& message) {
  if (nodes.size() <= kFewNodes) {
    for (const std::uint32_t node : nodes) send_mpi(node, message);
    return;
  }
  const std::vector<std::uint32_t> way = way_to(nodes);
  const std::uint32_t number = share(encode_mpi(message), way);
  for (const std::uint32_t node : nodes) {
    if (!nodes_[node].link) continue;
    nodes_[node].link->send(AgentMessage::kSharedMpi, BodyWriter().u32(number).take());
  }
  drop_shared(number, way);
}

}  // namespace chainmail::launch
