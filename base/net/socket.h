// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// TCP sockets: addresses, listeners, connections with the options that find dead peers quickly.
//
// Thread-safe (no state). All sockets are non-blocking and close-on-exec. Names are never looked
// up: addresses are numeric, so that no call waits for a name server.

#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace chainmail::internal {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const noexcept { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() noexcept { return reinterpret_cast<sockaddr*>(&storage); }
  /// "10.0.0.1:4711", "[fe80::1%eth0]:4711"
  [[nodiscard]] std::string to_string() const;
  [[nodiscard]] std::uint16_t port() const noexcept;
};

/// Reads what to_string() writes; nothing when it is no address.
[[nodiscard]] std::optional<SocketAddress> parse_address(std::string_view text);

/// The address that peers on other machines can reach this one by.
///
/// @param wanted  an interface's name ("eth0"), a numeric address of this machine, or empty: the
///                first interface that is up and no loopback, IPv4 before IPv6, routable before
///                link-local; 127.0.0.1 when there is none
/// Throws InvalidArgument that lists the interfaces when `wanted` is not found. Port 0.
[[nodiscard]] SocketAddress choose_address(const std::string& wanted);
[[nodiscard]] SocketAddress loopback_address();

/// Binds to `address` (port 0: the kernel's choice) and listens. Throws SystemError.
[[nodiscard]] UniqueFd listen_on(const SocketAddress& address, int backlog);
/// The address that a socket is bound to.
[[nodiscard]] SocketAddress local_address(int fd);
/// Begins to connect; the socket becomes writable when that is decided. Throws SystemError.
[[nodiscard]] UniqueFd start_connect(const SocketAddress& address);
/// The error of a finished connect, 0 when connected.
[[nodiscard]] int connect_error(int fd) noexcept;

/// How long a peer may be out of reach: after an outage TCP may come back only when the link has
/// been there for as long as it was away, so this outlasts 3 s without a link.
inline constexpr std::chrono::milliseconds kSilenceLimit{8000};
/// No delay for small messages; an idle peer that is cut off is noticed in kSilenceLimit.
void set_peer_options(int fd) noexcept;
/// Such a peer is noticed in `limit`, of 3 s or more, instead.
void set_silence_limit(int fd, std::chrono::milliseconds limit) noexcept;
/// A wait for input ends only when so many bytes have come, or the end of the stream.
void set_low_water(int fd, int bytes) noexcept;
/// True when what was sent has been retransmitted in vain and nothing has come for `limit`: for
/// busy connections, where keepalive does not run. A peer that is alive but does not read for hours
/// is reachable (TCP_USER_TIMEOUT would take it for dead).
[[nodiscard]] bool is_cut_off(int fd, std::chrono::milliseconds limit) noexcept;
/// True when the peer's kernel owes an answer to data or a probe that was sent again, and has given
/// none for `limit`, of 1500 ms or more. A connection that the kernel has given up owes none.
[[nodiscard]] bool is_silent(int fd, std::chrono::milliseconds limit) noexcept;
/// Bytes that the peer's kernel has not acknowledged yet.
[[nodiscard]] std::size_t unacknowledged_bytes(int fd) noexcept;
/// Acknowledges what has come at once; the kernel would wait up to 40 ms for something to send.
void acknowledge_now(int fd) noexcept;

}  // namespace chainmail::internal
