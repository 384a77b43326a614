// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/net/socket.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <array>
#include <cstring>
#include <memory>

#include "base/bytes.h"
#include "base/error.h"

namespace chainmail::internal {
namespace {

// TCP_RTO_MAX_MS, which headers older than Linux 6.15 do not have.
constexpr int kLongestRetry = 44;

struct FreeInterfaces {
  void operator()(ifaddrs* list) const noexcept { freeifaddrs(list); }
};
using Interfaces = std::unique_ptr<ifaddrs, FreeInterfaces>;

Interfaces list_interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw system_error("getifaddrs");
  return Interfaces(list);
}

const sockaddr_in& as_v4(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in&>(address.storage);
}
const sockaddr_in6& as_v6(const SocketAddress& address) {
  return reinterpret_cast<const sockaddr_in6&>(address.storage);
}

std::optional<SocketAddress> from_sockaddr(const sockaddr* address) {
  if (address == nullptr) return std::nullopt;
  SocketAddress result;
  if (address->sa_family == AF_INET) {
    result.length = sizeof(sockaddr_in);
  } else if (address->sa_family == AF_INET6) {
    result.length = sizeof(sockaddr_in6);
  } else {
    return std::nullopt;
  }
  std::memcpy(&result.storage, address, result.length);
  return result;
}

std::string host_of(const SocketAddress& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.storage.ss_family == AF_INET) {
    inet_ntop(AF_INET, &as_v4(address).sin_addr, text.data(), text.size());
    return text.data();
  }
  const sockaddr_in6& v6 = as_v6(address);
  inet_ntop(AF_INET6, &v6.sin6_addr, text.data(), text.size());
  std::string host = text.data();
  std::array<char, IF_NAMESIZE> name{};
  if (v6.sin6_scope_id != 0 && if_indextoname(v6.sin6_scope_id, name.data()) != nullptr) {
    host += std::string("%") + name.data();
  }
  return host;
}

// A bridge of containers or virtual machines has the same address on every machine.
bool is_bridge(std::string_view name) {
  for (const char* prefix : {"docker", "br-", "cni", "podman", "veth", "virbr"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// Higher is better; negative: never without being asked for.
int preference(const ifaddrs& interface, const SocketAddress& address) {
  if ((interface.ifa_flags & IFF_UP) == 0 || (interface.ifa_flags & IFF_LOOPBACK) != 0) return -1;
  const int penalty = is_bridge(interface.ifa_name) ? 10 : 0;
  if (address.storage.ss_family == AF_INET) {
    const auto host = ntohl(as_v4(address).sin_addr.s_addr);
    return ((host >> 16) == 0xa9fe ? 22 : 24) - penalty;  // 169.254/16 is link-local
  }
  return (IN6_IS_ADDR_LINKLOCAL(&as_v6(address).sin6_addr) != 0 ? 21 : 23) - penalty;
}

SocketAddress best_address() {
  const Interfaces list = list_interfaces();
  SocketAddress best = loopback_address();
  int best_preference = -1;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    const auto address = from_sockaddr(i->ifa_addr);
    if (!address) continue;
    const int value = preference(*i, *address);
    if (value > best_preference) {
      best = *address;
      best_preference = value;
    }
  }
  return best;
}

template <typename T>
void set_option(int fd, int level, int name, T value) noexcept {
  // An option that the kernel refuses makes things slower, not wrong.
  ::setsockopt(fd, level, name, &value, sizeof value);
}

UniqueFd open_socket(const SocketAddress& address) {
  UniqueFd fd(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd.is_open()) throw system_error("socket for " + address.to_string());
  return fd;
}

}  // namespace

std::string SocketAddress::to_string() const {
  const std::string host = host_of(*this);
  const bool is_v6 = storage.ss_family == AF_INET6;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port());
}

std::uint16_t SocketAddress::port() const noexcept {
  return ntohs(storage.ss_family == AF_INET ? as_v4(*this).sin_port : as_v6(*this).sin6_port);
}

std::optional<SocketAddress> parse_address(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto port = whole_number<std::uint16_t>(text.substr(colon + 1));
  if (!port) return std::nullopt;
  std::string host(text.substr(0, colon));
  SocketAddress address;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    auto& v6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    const std::size_t percent = host.find('%');
    if (percent != std::string::npos) {
      v6.sin6_scope_id = if_nametoindex(host.c_str() + percent + 1);
      host.resize(percent);
    }
    if (inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) != 1) return std::nullopt;
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(*port);
    address.length = sizeof v6;
    return address;
  }
  auto& v4 = reinterpret_cast<sockaddr_in&>(address.storage);
  if (inet_pton(AF_INET, host.c_str(), &v4.sin_addr) != 1) return std::nullopt;
  v4.sin_family = AF_INET;
  v4.sin_port = htons(*port);
  address.length = sizeof v4;
  return address;
}

SocketAddress loopback_address() { return *parse_address("127.0.0.1:0"); }

SocketAddress choose_address(const std::string& wanted) {
  if (wanted.empty()) return best_address();
  const Interfaces list = list_interfaces();
  std::optional<SocketAddress> found;
  std::string known;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    const auto address = from_sockaddr(i->ifa_addr);
    if (!address) continue;
    const std::string host = host_of(*address);
    known += (known.empty() ? "" : ", ") + std::string(i->ifa_name) + " (" + host + ")";
    if (host == wanted) return *address;
    const bool is_better =
        !found || (found->storage.ss_family == AF_INET6 && address->storage.ss_family == AF_INET);
    if (wanted == i->ifa_name && is_better) found = address;
  }
  if (found) return *found;
  throw InvalidArgument("no network interface or address \"" + wanted +
                        "\" on this machine; it has " + known);
}

UniqueFd listen_on(const SocketAddress& address, int backlog) {
  UniqueFd fd = open_socket(address);
  if (::bind(fd.get(), address.get(), address.length) != 0) {
    throw system_error("bind to " + address.to_string());
  }
  if (::listen(fd.get(), backlog) != 0) throw system_error("listen on " + address.to_string());
  return fd;
}

SocketAddress local_address(int fd) {
  SocketAddress address;
  address.length = sizeof address.storage;
  if (::getsockname(fd, address.get(), &address.length) != 0) throw system_error("getsockname");
  return address;
}

UniqueFd start_connect(const SocketAddress& address) {
  UniqueFd fd = open_socket(address);
  if (::connect(fd.get(), address.get(), address.length) != 0 && errno != EINPROGRESS) {
    throw system_error("connect to " + address.to_string());
  }
  return fd;
}

int connect_error(int fd) noexcept {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
  return error;
}

void set_peer_options(int fd) noexcept {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  // One probe a second, the first after one.
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_silence_limit(fd, kSilenceLimit);
  // Where the kernel can (6.15), it tries again once a second at least.
  set_option(fd, IPPROTO_TCP, kLongestRetry, 1000);
}

void set_silence_limit(int fd, std::chrono::milliseconds limit) noexcept {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(limit).count();
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(seconds) - 1);
}

void set_low_water(int fd, int bytes) noexcept { set_option(fd, SOL_SOCKET, SO_RCVLOWAT, bytes); }

bool is_cut_off(int fd, std::chrono::milliseconds limit) noexcept {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  const bool retransmits = info.tcpi_unacked > 0 && info.tcpi_retransmits >= 2;
  // Probes of a closed window count here until one is answered.
  const bool probes = info.tcpi_probes >= 3;
  return (retransmits || probes) && info.tcpi_last_ack_recv > limit.count();
}

bool is_silent(int fd, std::chrono::milliseconds limit) noexcept {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return false;
  // Answers clear both; between probes of a window that is closed for long many seconds may pass.
  const bool is_owed = info.tcpi_probes > 0 || info.tcpi_retransmits > 0;
  return is_owed && info.tcpi_last_ack_recv > limit.count();
}

std::size_t unacknowledged_bytes(int fd) noexcept {
  int bytes = 0;
  return ::ioctl(fd, SIOCOUTQ, &bytes) == 0 && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

void acknowledge_now(int fd) noexcept {
  const int one = 1;
  // For messages that come later, too, until the kernel finds otherwise.
  static_cast<void>(::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &one, sizeof one));
}

}  // namespace chainmail::internal
