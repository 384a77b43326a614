// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/this_machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

std::string text_of(int family, const void* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(family, address, text.data(), text.size()) != nullptr ? text.data() : "";
}

struct OwnAddress {
  std::string text;  // as inet_ntop writes it
  bool is_ipv6 = false;
  bool is_for_others = false;
};

std::vector<OwnAddress> own_addresses() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
  std::vector<OwnAddress> found;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const bool is_up = (entry->ifa_flags & IFF_LOOPBACK) == 0 && (entry->ifa_flags & IFF_UP) != 0;
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* v4 = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      found.push_back({text_of(AF_INET, &v4->sin_addr), false, is_up});
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
      // Link-local addresses mean nothing without an interface of the reader.
      found.push_back({text_of(AF_INET6, &v6), true, is_up && !IN6_IS_ADDR_LINKLOCAL(&v6)});
    }
  }
  return found;
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

std::string hosts_file() {
  std::ifstream file("/etc/hosts");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

bool is_own_address(const std::string& name) {
  std::array<unsigned char, 16> bytes{};
  std::string wanted;
  for (const int family : {AF_INET, AF_INET6}) {
    if (inet_pton(family, name.c_str(), bytes.data()) == 1) wanted = text_of(family, bytes.data());
  }
  if (wanted.empty()) return false;
  const std::vector<OwnAddress> own = own_addresses();
  return wanted.starts_with("127.") || std::any_of(own.begin(), own.end(), [&](const auto& known) {
           return known.text == wanted;
         });
}

}  // namespace

std::string addresses_for_others() {
  std::vector<std::string> found;
  const std::vector<OwnAddress> own = own_addresses();
  for (const bool is_ipv6 : {false, true}) {
    for (const OwnAddress& address : own) {
      if (address.is_for_others && address.is_ipv6 == is_ipv6) found.push_back(address.text);
    }
  }
  const auto best = std::find(found.begin(), found.end(), address_of_login());
  if (best != found.end()) std::rotate(found.begin(), best, best + 1);
  return found.empty() ? "127.0.0.1" : joined(found, ",");
}

std::uint16_t free_port() {
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

std::string own_host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

int usable_processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
}

bool is_same_name(const std::string& one, const std::string& other) {
  if (one == other) return true;
  const auto is_short_form = [](const std::string& name, const std::string& full) {
    return name.find_first_of(".:") == std::string::npos && full.size() > name.size() &&
           full.compare(0, name.size(), name) == 0 && full[name.size()] == '.';
  };
  return is_short_form(one, other) || is_short_form(other, one);
}

bool names_itself(const std::string& name, const std::string& own, const std::string& hosts,
                  const std::function<bool(const std::string&)>& is_own) {
  if (!name.starts_with(own + ".")) return false;
  std::istringstream lines(hosts);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string address;
    words >> address;
    for (std::string full; words >> full;) {
      const bool is_part = full == name || full.starts_with(name + ".");
      if (is_part && is_own(address)) return true;
    }
  }
  return false;
}

bool is_this_machine(const Host& host) {
  if (!host.user.empty() || host.port) return false;
  for (const char* name : {"localhost", "ip6-localhost"}) {
    if (strcasecmp(host.name.c_str(), name) == 0) return true;
  }
  const std::string own = own_host_name();
  const std::string label = own.substr(0, own.find('.'));
  if (host.name == own || host.name == label || is_own_address(host.name)) return true;
  // A lookup would wait for a name server; most names do not begin with this one.
  return host.name.starts_with(label + ".") &&
         names_itself(host.name, label, hosts_file(), is_own_address);
}

}  // namespace chainmail::launch
