// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/mpi/service/pmix_listener.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <string_view>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using asio::ip::tcp;

// A rank says who it is in one packet of a few hundred bytes, as soon as it is connected.
constexpr std::size_t kMaxFirstBytes = 4096;
// A rank on a busy host may take long over it, and one that is refused goes on without the others.
// Strangers who say nothing are to take places from nobody: half of them are theirs at most.
constexpr std::chrono::seconds kTimeToSpeak{30};
constexpr std::chrono::seconds kTimeInACrowd{2};
constexpr std::chrono::milliseconds kTimeForTheRest{20};
// Callers at a time that have not been looked at; more wait in the kernel.
constexpr std::size_t kMaxCallers = 256;
constexpr std::chrono::milliseconds kAcceptPause{20};

// Asio does not: ranks would inherit the port.
void close_on_exec(int fd) {
  if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) throw system_error("cannot mark a socket");
}

}  // namespace

// Counts itself, so that a caller whose handlers are dropped gives its place back.
struct PmixListener::Caller {
  Caller(tcp::socket connected, std::shared_ptr<std::size_t> all)
      : socket(std::move(connected)), limit(socket.get_executor()), callers(std::move(all)) {
    ++*callers;
  }
  ~Caller() { --*callers; }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  tcp::socket socket;
  asio::steady_timer limit;
  std::shared_ptr<std::size_t> callers;
  int looks = 0;
};

PmixListener::PmixListener(asio::io_context& io, std::string name,
                           std::function<void(internal::UniqueFd)> on_member)
    : name_(std::move(name)), on_member_(std::move(on_member)), acceptor_(io), pause_(io) {
  try {
    acceptor_.open(tcp::v4());
    close_on_exec(acceptor_.native_handle());
    acceptor_.bind({asio::ip::address_v4::loopback(), 0});
    acceptor_.listen();
    port_ = acceptor_.local_endpoint().port();
  } catch (const asio::system_error& error) {
    throw SystemError(std::string("cannot listen on 127.0.0.1 for MPI: ") + error.what() +
                          "; start with --mpi none if the program uses no MPI",
                      error.code().value());
  }
  accept_next();
}

PmixListener::~PmixListener() { *alive_ = false; }

void PmixListener::accept_next() {
  if (*callers_ >= kMaxCallers) return accept_later();
  acceptor_.async_accept([this, alive = alive_](const asio::error_code& error, tcp::socket socket) {
    if (!*alive || error == asio::error::operation_aborted) return;
    if (error) return accept_later();
    close_on_exec(socket.native_handle());
    listen_to(std::make_shared<Caller>(std::move(socket), callers_));
    accept_next();
  });
}

// When there is no room, or no descriptor is left.
void PmixListener::accept_later() {
  pause_.expires_after(kAcceptPause);
  pause_.async_wait([this, alive = alive_](const asio::error_code& error) {
    if (*alive && !error) accept_next();
  });
}

void PmixListener::listen_to(const std::shared_ptr<Caller>& caller) {
  caller->limit.expires_after(*callers_ <= kMaxCallers / 2 ? kTimeToSpeak : kTimeInACrowd);
  caller->limit.async_wait([weak = std::weak_ptr<Caller>(caller)](const asio::error_code& error) {
    asio::error_code ignored;
    if (const auto late = weak.lock(); late && !error) late->socket.close(ignored);
  });
  caller->socket.async_wait(tcp::socket::wait_read,
                            [this, alive = alive_, caller](const asio::error_code& error) {
                              if (*alive && !error) look_at(caller);
                            });
}

// Nothing is taken from the socket: libpmix wants to read it from the beginning.
void PmixListener::look_at(const std::shared_ptr<Caller>& caller) {
  std::array<char, kMaxFirstBytes> buffer;
  const ssize_t count =
      recv(caller->socket.native_handle(), buffer.data(), buffer.size(), MSG_PEEK | MSG_DONTWAIT);
  caller->limit.cancel();
  if (count <= 0) return;
  const std::string_view said(buffer.data(), static_cast<std::size_t>(count));
  if (said.find(name_) != std::string_view::npos) {
    asio::error_code error;
    caller->socket.native_non_blocking(false, error);
    internal::UniqueFd connection(caller->socket.release(error));
    if (!error) on_member_(std::move(connection));
    return;
  }
  if (++caller->looks > 1) return;
  // A second look, in case that the words came in two packets.
  caller->limit.expires_after(kTimeForTheRest);
  caller->limit.async_wait([this, alive = alive_, caller](const asio::error_code& error) {
    if (*alive && !error) look_at(caller);
  });
}

}  // namespace chainmail::launch
