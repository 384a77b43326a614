// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/launcher/launcher_topology.h"

#include <cstddef>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/net/socket.h"

namespace chainmail::internal {
namespace {

// `list` is comma-separated.
bool has_address(const std::string& list, const std::string& address) {
  return ("," + list + ",").find("," + address + ",") != std::string::npos;
}

}  // namespace

ops::Topology launcher_topology(const Welcome& welcome, const JobInfo& info) {
  const auto rank = static_cast<int>(welcome.rank);
  const auto size = static_cast<int>(welcome.node_of_rank.size());
  if (rank != info.rank || size != info.size) {
    throw InvalidArgument("RANK=" + std::to_string(info.rank) + " WORLD_SIZE=" +
                          std::to_string(info.size) + " but to the launcher this is rank " +
                          std::to_string(rank) + " of " + std::to_string(size) +
                          "; a starter inside a rank of the launcher must run without "
                          "CHAINMAIL_JOB_FD");
  }
  std::vector<std::string> nodes;
  for (const std::uint32_t node : welcome.node_of_rank) nodes.push_back(std::to_string(node));
  return ops::Topology::from_node_ids(nodes);
}

std::string launcher_interface(const Welcome& welcome, const Environment& environment) {
  // "<client> <port> <server> <port>"
  std::istringstream login(environment("SSH_CONNECTION").value_or(""));
  std::string client;
  std::string client_port;
  std::string server;
  if (!(login >> client >> client_port >> server)) return {};
  const std::size_t own = welcome.node_of_rank.at(welcome.rank);
  for (std::size_t node = 0; node < welcome.addresses.size(); ++node) {
    if (node == own || !has_address(welcome.addresses[node], client)) continue;
    try {
      (void)choose_address(server);
      return server;
    } catch (const InvalidArgument&) {
      return {};
    }
  }
  return {};
}

}  // namespace chainmail::internal
