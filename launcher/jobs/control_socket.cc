// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/control_socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <asio/buffer.hpp>
#include <asio/read_until.hpp>
#include <asio/steady_timer.hpp>
#include <asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using asio::local::stream_protocol;
using internal::UniqueFd;

// Somebody types these: more at once is a mistake, and holds descriptors.
constexpr int kMostConnections = 16;
constexpr std::chrono::seconds kPatience{30};

void keep_from_children(int fd) { (void)fcntl(fd, F_SETFD, FD_CLOEXEC); }

}  // namespace

// The folder's mode says so already, unless somebody has changed that.
bool is_of_this_user(int fd) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == geteuid() || peer.uid == 0;
}

std::string control_path(const UniqueFd& folder) {
  return "/proc/self/fd/" + std::to_string(folder.get()) + "/" + kControlSocketName;
}

struct ControlSocket::State {
  State(asio::io_context& context, Handle what)
      : io(context), acceptor(io), retry(io), handle(std::move(what)) {}

  asio::io_context& io;
  stream_protocol::acceptor acceptor;
  asio::steady_timer retry;
  Handle handle;
  int connections = 0;
};

// Lives as long as something of it is under way.
class ControlSocket::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<State> state, stream_protocol::socket socket)
      : state_(std::move(state)), socket_(std::move(socket)), timer_(state_->io) {
    ++state_->connections;
  }
  ~Connection() { --state_->connections; }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start() {
    timer_.expires_after(kPatience);
    timer_.async_wait([weak = weak_from_this()](const asio::error_code& error) {
      const auto self = weak.lock();
      if (!error && self) self->close();
    });
    asio::async_read_until(
        socket_, asio::dynamic_buffer(request_, kMostControlBytes), '\n',
        [self = shared_from_this()](const asio::error_code& error, std::size_t bytes) {
          if (error || !self->state_->handle) return;
          self->request_.resize(bytes - 1);
          self->state_->handle(self->request_,
                               [self](const std::string& line) { self->answer(line); });
        });
  }

 private:
  void answer(const std::string& line) {
    answer_ = line + "\n";
    asio::async_write(
        socket_, asio::buffer(answer_),
        [self = shared_from_this()](const asio::error_code&, std::size_t) { self->close(); });
  }

  void close() {
    asio::error_code ignored;
    socket_.close(ignored);
    timer_.cancel();
  }

  std::shared_ptr<State> state_;
  stream_protocol::socket socket_;
  asio::steady_timer timer_;
  std::string request_;
  std::string answer_;
};

ControlSocket::ControlSocket(asio::io_context& io, const std::string& folder, Handle handle)
    : state_(std::make_shared<State>(io, std::move(handle))) {
  const UniqueFd place(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!place.is_open()) throw system_error("cannot open " + folder);
  try {
    stream_protocol::acceptor& acceptor = state_->acceptor;
    acceptor.open(stream_protocol());
    keep_from_children(acceptor.native_handle());
    // The job's own, of before all its ranks were started anew.
    (void)unlink(control_path(place).c_str());
    acceptor.bind(stream_protocol::endpoint(control_path(place)));
    acceptor.listen();
  } catch (const asio::system_error& error) {
    throw SystemError("cannot listen in " + folder + ": " + error.code().message(),
                      error.code().value());
  }
  accept(state_);
}

ControlSocket::~ControlSocket() {
  asio::error_code ignored;
  state_->acceptor.close(ignored);
  state_->retry.cancel();
  state_->handle = {};
}

// Without descriptors it would come back at once, for ever; a job may have some again.
void ControlSocket::accept_later(const std::shared_ptr<State>& state) {
  state->retry.expires_after(std::chrono::seconds(1));
  state->retry.async_wait([state](const asio::error_code& error) {
    if (!error && state->acceptor.is_open()) accept(state);
  });
}

void ControlSocket::accept(const std::shared_ptr<State>& state) {
  state->acceptor.async_accept(
      [state](const asio::error_code& error, stream_protocol::socket socket) {
        if (!state->acceptor.is_open()) return;
        if (error) return accept_later(state);
        keep_from_children(socket.native_handle());
        if (state->connections < kMostConnections && is_of_this_user(socket.native_handle())) {
          std::make_shared<Connection>(state, std::move(socket))->start();
        }
        accept(state);
      });
}

}  // namespace chainmail::launch
