// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/agent/host_facts.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace chainmail::launch {
namespace {

std::string own_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string text_of(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address->sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, address, sizeof in);
    inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof in);
    // Link-local addresses mean nothing without an interface of the reader.
    if (IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) return {};
    inet_ntop(AF_INET6, &in.sin6_addr, text.data(), text.size());
  }
  return text.data();
}

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
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      if ((entry->ifa_flags & IFF_LOOPBACK) != 0 || (entry->ifa_flags & IFF_UP) == 0) continue;
      if (std::string text = text_of(entry->ifa_addr); !text.empty()) found.push_back(text);
    }
  }
  freeifaddrs(list);
  const auto best = std::find(found.begin(), found.end(), address_of_login());
  if (best != found.end()) std::rotate(found.begin(), best, best + 1);
  std::string joined;
  for (const std::string& text : found) joined += (joined.empty() ? "" : ",") + text;
  // A machine without a network still has ranks that talk to each other.
  return joined.empty() ? "127.0.0.1" : joined;
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

std::uint32_t usable_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return static_cast<std::uint32_t>(CPU_COUNT(&allowed));
}

}  // namespace

AgentHello host_facts() {
  AgentHello hello;
  hello.host = own_name();
  hello.pid = static_cast<std::uint32_t>(getpid());
  hello.cores = usable_processors();
  hello.addresses = addresses();
  hello.free_port = free_port();
  return hello;
}

}  // namespace chainmail::launch
