// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/rendezvous/port_announcer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>

#include "base/error.h"

namespace chainmail::internal {
namespace {

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};

AbstractAddress address_of(const std::string& job_id) {
  const std::string name = "chainmail/" + std::to_string(::getuid()) + "/" + job_id;
  AbstractAddress result;
  result.address.sun_family = AF_UNIX;
  // The first byte stays 0: the name lives in the network namespace, not in a folder.
  if (name.size() + 1 > sizeof result.address.sun_path) {
    throw InvalidArgument("the job id \"" + job_id + "\" is too long for a socket's name");
  }
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

bool is_same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::getuid();
}

}  // namespace

PortAnnouncer::PortAnnouncer(const std::string& job_id, std::uint16_t port) : port_(port) {
  const AbstractAddress name = address_of(job_id);
  fd_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd_.is_open()) throw system_error("socket");
  if (::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0 ||
      ::listen(fd_.get(), 128) != 0) {
    throw system_error("announcing the store of job " + job_id);
  }
  thread_ = std::thread([this] { serve(); });
}

PortAnnouncer::~PortAnnouncer() {
  is_stopping_ = true;
  ::shutdown(fd_.get(), SHUT_RDWR);  // wakes poll
  thread_.join();
}

void PortAnnouncer::serve() noexcept {
  while (!is_stopping_) {
    pollfd ready{fd_.get(), POLLIN, 0};
    if (::poll(&ready, 1, 1000) <= 0) continue;
    const UniqueFd peer(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer.is_open()) {
      // Perhaps out of descriptors: do not spin.
      if (!is_stopping_) ::poll(nullptr, 0, 10);
      continue;
    }
    // Two bytes always fit into a fresh socket's buffer.
    if (is_same_user(peer.get())) {
      [[maybe_unused]] const auto sent = ::send(peer.get(), &port_, sizeof port_, MSG_NOSIGNAL);
    }
  }
}

std::uint16_t ask_port(const std::string& job_id, Deadline deadline) {
  const AbstractAddress name = address_of(job_id);
  while (!deadline.has_passed()) {
    // Non-blocking: connect() would wait forever when rank 0 is stopped and its backlog is full.
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.is_open()) throw system_error("socket");
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) == 0 &&
        is_same_user(fd.get())) {
      std::uint16_t port = 0;
      pollfd ready{fd.get(), POLLIN, 0};
      if (::poll(&ready, 1, 1000) > 0 &&
          ::recv(fd.get(), &port, sizeof port, MSG_DONTWAIT) == sizeof port) {
        return port;
      }
    }
    fd.reset();
    ::poll(nullptr, 0, 10);  // rank 0 has not come yet
  }
  throw TimeoutError("rank 0 of job " + job_id + " did not announce its store", {0});
}

}  // namespace chainmail::internal
