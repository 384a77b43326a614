// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The one TCP port of MPI's start-up: on 127.0.0.1, for ranks of this node. A caller is let in when
// its first words contain the job's name, which is random and known only to its ranks; others are
// dropped and cost nobody anything.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/steady_timer.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/unique_fd.h"

namespace chainmail::launch {

class PmixListener {
 public:
  /// Listens. `on_member` gets the connections of ranks, nothing read from them. Throws
  /// SystemError.
  PmixListener(asio::io_context& io, std::string name,
               std::function<void(internal::UniqueFd)> on_member);
  ~PmixListener();
  PmixListener(const PmixListener&) = delete;
  PmixListener& operator=(const PmixListener&) = delete;

  std::uint16_t port() const noexcept { return port_; }

 private:
  struct Caller;
  void accept_next();
  void accept_later();
  void listen_to(const std::shared_ptr<Caller>& caller);
  void look_at(const std::shared_ptr<Caller>& caller);

  std::string name_;
  std::function<void(internal::UniqueFd)> on_member_;
  asio::ip::tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  std::uint16_t port_ = 0;
  // Shared with the callers' handlers, which may outlive this.
  std::shared_ptr<std::size_t> callers_ = std::make_shared<std::size_t>(0);
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace chainmail::launch
