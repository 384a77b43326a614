// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/host_facts.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/hosts/this_machine.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

// The address that the remote shell came in on is the one that others surely reach.
std::string address_of_login() {
  const char* connection = std::getenv("SSH_CONNECTION");
  if (connection == nullptr) return {};
  std::istringstream words(connection);
  std::string client;
  std::string client_port;
  std::string server;
  words >> client >> client_port >> server;
  return server;
}

std::string addresses() {
  std::vector<std::string> found;
  const std::vector<OwnAddress> own = own_addresses();
  for (const bool is_ipv6 : {false, true}) {
    for (const OwnAddress& address : own) {
      if (address.is_for_others && address.is_ipv6 == is_ipv6) found.push_back(address.text);
    }
  }
  const auto best = std::find(found.begin(), found.end(), address_of_login());
  if (best != found.end()) std::rotate(found.begin(), best, best + 1);
  // A machine without a network still has ranks that talk to each other.
  return found.empty() ? "127.0.0.1" : joined(found, ",");
}

// For MASTER_PORT only: free now, and very likely still free when rank 0 binds it.
std::uint32_t free_port() {
  const internal::UniqueFd socket_fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t length = sizeof address;
  if (!socket_fd.is_open() ||
      bind(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(socket_fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return 0;
  }
  return ntohs(address.sin_port);
}

}  // namespace

AgentHello host_facts() {
  AgentHello hello;
  hello.host = own_host_name();
  hello.pid = static_cast<std::uint32_t>(getpid());
  hello.cores = static_cast<std::uint32_t>(usable_processors());
  hello.addresses = addresses();
  hello.free_port = free_port();
  return hello;
}

}  // namespace chainmail::launch
