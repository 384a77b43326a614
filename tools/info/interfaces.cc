// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/info/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <memory>

#include "base/error.h"

namespace chainmail::info {
namespace {

// Nothing for what is neither IPv4 nor IPv6.
std::string address_text(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address.sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  } else if (address.sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  }
  if (bytes == nullptr ||
      ::inet_ntop(address.sa_family, bytes, text.data(), text.size()) == nullptr) {
    return "";
  }
  return text.data();
}

}  // namespace

std::string list_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) throw system_error("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, ::freeifaddrs);
  std::string list;
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::string address = address_text(*entry->ifa_addr);
    if (address.empty()) continue;
    list += (list.empty() ? "" : ", ") + std::string(entry->ifa_name) + " " + address;
  }
  return list.empty() ? "none is up" : list;
}

}  // namespace chainmail::info
