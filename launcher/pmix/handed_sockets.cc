// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/pmix/handed_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace chainmail::launch {
namespace {

// Written before libpmix has threads, then only read.
std::atomic<int> handoff_fd{-1};
std::atomic<int> listener_fd{-1};
std::atomic<std::uint16_t> listening_port{0};

bool is_loopback_address(const sockaddr* address) {
  if (address->sa_family == AF_INET6) return true;  // IPv6 is off: see pmix_server.cc
  const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
  return address->sa_family == AF_INET && ntohl(v4->sin_addr.s_addr) >> 24U == 127U;
}

int received_socket(int fd) {
  char byte = 0;
  iovec piece{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t count = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  if (count < 0) return -1;
  const cmsghdr* head = CMSG_FIRSTHDR(&message);
  if (count == 0 || head == nullptr || head->cmsg_type != SCM_RIGHTS) {
    // libpmix gives up listening then: the agent has gone, and with it the job.
    errno = EINVAL;
    return -1;
  }
  int socket = -1;
  std::memcpy(&socket, CMSG_DATA(head), sizeof socket);
  return socket;
}

void write_address(sockaddr* address, socklen_t* length) {
  sockaddr_in loopback{};
  loopback.sin_family = AF_INET;
  loopback.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  loopback.sin_port = htons(listening_port);
  std::memcpy(address, &loopback, std::min<std::size_t>(*length, sizeof loopback));
  *length = sizeof loopback;
}

}  // namespace

void use_handed_sockets(internal::UniqueFd handoff, std::uint16_t port) {
  listening_port = port;
  handoff_fd = handoff.release();
}

bool handoff_is_in_use() noexcept { return listener_fd >= 0; }

}  // namespace chainmail::launch

// The kernel's own calls stand for what the C library would have done.
extern "C" {

__attribute__((visibility("default"))) int bind(int fd, const sockaddr* address,
                                                socklen_t length) noexcept {
  using namespace chainmail::launch;
  if (listener_fd < 0 && handoff_fd >= 0 && is_loopback_address(address)) {
    // The number stays libpmix's; what it stands for changes.
    if (dup3(handoff_fd, fd, O_CLOEXEC) < 0) return -1;
    close(handoff_fd.exchange(-1));
    listener_fd = fd;
    return 0;
  }
  return static_cast<int>(syscall(SYS_bind, fd, address, length));
}

__attribute__((visibility("default"))) int listen(int fd, int backlog) noexcept {
  if (fd == chainmail::launch::listener_fd) return 0;
  return static_cast<int>(syscall(SYS_listen, fd, backlog));
}

__attribute__((visibility("default"))) int getsockname(int fd, sockaddr* address,
                                                       socklen_t* length) noexcept {
  if (fd == chainmail::launch::listener_fd) {
    chainmail::launch::write_address(address, length);
    return 0;
  }
  return static_cast<int>(syscall(SYS_getsockname, fd, address, length));
}

__attribute__((visibility("default"))) int accept(int fd, sockaddr* address, socklen_t* length) {
  if (fd == chainmail::launch::listener_fd) {
    const int socket = chainmail::launch::received_socket(fd);
    if (socket >= 0 && address != nullptr) chainmail::launch::write_address(address, length);
    return socket;
  }
  return static_cast<int>(syscall(SYS_accept, fd, address, length));
}
}
