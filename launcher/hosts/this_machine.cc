// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/this_machine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>

namespace chainmail::launch {
namespace {

std::string text_of(int family, const void* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(family, address, text.data(), text.size()) != nullptr ? text.data() : "";
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

bool is_this_machine(const Host& host) {
  if (!host.user.empty() || host.port) return false;
  for (const char* name : {"localhost", "ip6-localhost"}) {
    if (strcasecmp(host.name.c_str(), name) == 0) return true;
  }
  const std::string own = own_host_name();
  return host.name == own || host.name == own.substr(0, own.find('.')) || is_own_address(host.name);
}

}  // namespace chainmail::launch
