// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/rendezvous/reachability.h"

#include <netdb.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/net/socket.h"
#include "base/unique_fd.h"

namespace chainmail::internal {
namespace {

struct LookedUp {
  std::vector<SocketAddress> addresses;
  std::string error;
};

LookedUp look_up(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  LookedUp result;
  const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (code != 0) {
    result.error = code == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(code);
    return result;
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  for (const addrinfo* i = list; i != nullptr; i = i->ai_next) {
    SocketAddress& address = result.addresses.emplace_back();
    std::memcpy(&address.storage, i->ai_addr, i->ai_addrlen);
    address.length = i->ai_addrlen;
  }
  return result;
}

// What to say of a connection to `place` that ended with `error`, 0 for none.
std::string describe(const std::string& place, int error) {
  switch (error) {
    case 0:
      return "The store at " + place + " takes connections but does not answer; is rank 0 stopped?";
    case ECONNREFUSED:
      return "Nobody listens at " + place + "; has rank 0 started, or has it ended?";
    case ETIMEDOUT:
      return place + " does not answer; is its host up, and does a firewall drop the port?";
    default:
      return place + " cannot be reached: " + std::strerror(error);
  }
}

// How much the end of a connection tells, where a host has several addresses.
int weight(int error) {
  switch (error) {
    case 0:
      return 3;
    case ECONNREFUSED:
      return 2;
    case ETIMEDOUT:
      return 1;
    default:
      return 0;
  }
}

// All at once, so that a silent address costs the others no time.
Reachability connect_to(const std::vector<SocketAddress>& addresses, const Deadline& deadline) {
  struct Attempt {
    std::string place;
    int error = 0;
    UniqueFd fd{};
  };
  std::vector<Attempt> attempts;
  for (const SocketAddress& address : addresses) {
    Attempt& attempt = attempts.emplace_back(Attempt{address.to_string()});
    try {
      attempt.fd = start_connect(address);
    } catch (const SystemError& error) {
      attempt.error = error.native_code();
    }
  }
  for (Attempt& attempt : attempts) {
    if (attempt.error != 0) continue;
    pollfd waiting{attempt.fd.get(), POLLOUT, 0};
    int decided = -1;
    do {
      decided = ::poll(&waiting, 1, static_cast<int>(deadline.left().count()));
    } while (decided < 0 && errno == EINTR && !deadline.has_passed());
    attempt.error = decided == 1 ? connect_error(attempt.fd.get()) : ETIMEDOUT;
  }
  const auto best = std::max_element(
      attempts.begin(), attempts.end(),
      [](const auto& a, const auto& b) { return weight(a.error) < weight(b.error); });
  return {best->error == 0, describe(best->place, best->error)};
}

}  // namespace

Reachability why_no_answer(const std::string& host, std::uint16_t port, const Deadline& deadline) {
  // A name server that does not answer holds up nobody but the thread that asks it.
  std::packaged_task<LookedUp()> ask([host, port] { return look_up(host, port); });
  auto answer = ask.get_future();
  std::thread(std::move(ask)).detach();
  if (answer.wait_for(deadline.left() / 2) != std::future_status::ready) {
    return {false, "The name service does not answer for host " + host +
                       "; is it reachable from here? An address needs none."};
  }
  const LookedUp found = answer.get();
  if (found.addresses.empty()) {
    return {false, "The host name " + host + " cannot be resolved: " + found.error};
  }
  return connect_to(found.addresses, deadline);
}

}  // namespace chainmail::internal
