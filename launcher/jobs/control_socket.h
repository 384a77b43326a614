// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where a running job takes commands of its user: a socket in the job's own folder (0700). One line
// of JSON is the request, one line the answer, then it is closed. What they say is job_request.h's.
//
// One thread, the io_context's.

#pragma once

#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <functional>
#include <memory>
#include <string>

#include "base/unique_fd.h"

namespace chainmail::launch {

inline constexpr char kControlSocketName[] = "control";
/// Longest request, and longest answer.
inline constexpr std::size_t kMostControlBytes = std::size_t{4} << 20;

class ControlSocket {
 public:
  /// To be called once; later is fine, and so is never, where the answer has become pointless.
  using Answer = std::function<void(const std::string& line)>;
  using Handle = std::function<void(const std::string& request, Answer answer)>;

  /// Listens in `folder`. Throws SystemError where it cannot.
  ControlSocket(asio::io_context& io, const std::string& folder, Handle handle);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

 private:
  class Connection;
  struct State;

  static void accept(const std::shared_ptr<State>& state);
  static void accept_later(const std::shared_ptr<State>& state);

  std::shared_ptr<State> state_;
};

/// Whether the process at the other end of a local socket is this user's, or root's.
[[nodiscard]] bool is_of_this_user(int fd);

/// The path of the socket in a folder that may have a name too long for one: by a descriptor of the
/// folder, which must stay open while it is used.
[[nodiscard]] std::string control_path(const internal::UniqueFd& folder);

}  // namespace chainmail::launch
