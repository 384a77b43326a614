// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/tree/tunnel_wire.h"

#include <cerrno>

#include "base/error.h"

namespace chainmail::launch {
namespace {

constexpr const char* kProtocol = "agent protocol: tunnels";

void check(bool is_sound, const char* what) {
  if (!is_sound) throw SystemError(std::string("agent protocol: ") + what, EPROTO);
}

}  // namespace

TunnelOrder decode_tunnel_order(std::string_view body) {
  auto order = decode_fields<TunnelOrder>(body, kProtocol);
  check(!order.command.empty() && !order.command.front().empty(), "a tunnel without a command");
  return order;
}

TunnelOutput decode_tunnel_output(std::string_view body) {
  auto output = decode_fields<TunnelOutput>(body, kProtocol);
  check(output.stream == TunnelStream::kOutput || output.stream == TunnelStream::kError,
        "a tunnel has no such stream");
  return output;
}

TunnelEnd decode_tunnel_end(std::string_view body) {
  auto end = decode_fields<TunnelEnd>(body, kProtocol);
  check(end.how <= TunnelEnd::How::kNotStarted, "a tunnel has no such end");
  return end;
}

TunnelText decode_tunnel_text(std::string_view body) {
  return decode_fields<TunnelText>(body, kProtocol);
}

}  // namespace chainmail::launch
