// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the launcher and an agent that carries others say to each other about that: see the kTunnel
// messages of launcher/channel/wire.h. Pure functions over bytes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/channel/wire.h"

namespace chainmail::launch {

/// Bytes of a tunnel in one frame at most. What the launcher says in pieces says 256 KiB at once:
/// its messages fit with their heads, however many hosts they go through, so that each arrives in
/// one frame and urgent ones can go between.
inline constexpr std::size_t kTunnelPieceBytes = (std::size_t{256} << 10) + 4096;

/// A command to run, and the number under which its streams travel.
struct TunnelOrder {
  std::uint32_t tunnel = 0;
  std::vector<std::string> command;
  static void fields(auto& archive, auto& m) { archive(m.tunnel, m.command); }
};
/// Throws SystemError, as the others do.
[[nodiscard]] TunnelOrder decode_tunnel_order(std::string_view body);

enum class TunnelStream : std::uint8_t { kOutput = 1, kError = 2 };

/// Bytes that the command has printed; none: the end of that stream.
struct TunnelOutput {
  std::uint32_t tunnel = 0;
  TunnelStream stream = TunnelStream::kOutput;
  std::string bytes;
  static void fields(auto& archive, auto& m) { archive(m.tunnel, m.stream, m.bytes); }
};
[[nodiscard]] TunnelOutput decode_tunnel_output(std::string_view body);

/// How the command ended; nothing of this tunnel comes afterwards.
struct TunnelEnd {
  enum class How : std::uint8_t { kExited, kKilled, kNotStarted };
  std::uint32_t tunnel = 0;
  How how = How::kExited;
  std::uint32_t value = 0;  ///< exit code, signal number, nothing
  std::string reason;       ///< why it could not be started
  static void fields(auto& archive, auto& m) { archive(m.tunnel, m.how, m.value, m.reason); }
};
[[nodiscard]] TunnelEnd decode_tunnel_end(std::string_view body);

/// What concerns a tunnel: its number and some text.
struct TunnelText {
  std::uint32_t tunnel = 0;
  std::string text;
  static void fields(auto& archive, auto& m) { archive(m.tunnel, m.text); }
};
[[nodiscard]] TunnelText decode_tunnel_text(std::string_view body);

}  // namespace chainmail::launch
