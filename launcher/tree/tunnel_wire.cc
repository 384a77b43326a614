// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/tree/tunnel_wire.h"

#include <cerrno>

#include "base/error.h"
#include "base/job/job_protocol.h"

namespace chainmail::launch {

using internal::BodyReader;
using internal::BodyWriter;

namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw SystemError("agent protocol: " + what, EPROTO);
}

void check_end(const BodyReader& body) {
  if (!body.at_end()) refuse("bytes after the end of a tunnel's message");
}

}  // namespace

std::string encode_tunnel_order(const TunnelOrder& order) {
  BodyWriter body;
  body.u32(order.tunnel).u32(static_cast<std::uint32_t>(order.command.size()));
  for (const std::string& word : order.command) body.text(word);
  return body.take();
}

TunnelOrder decode_tunnel_order(std::string_view bytes) {
  BodyReader body(bytes);
  TunnelOrder order;
  order.tunnel = body.u32();
  // Each word takes bytes of the body, so the number alone makes nothing grow.
  const std::uint32_t words = body.u32();
  for (std::uint32_t i = 0; i < words; ++i) order.command.push_back(body.text());
  check_end(body);
  if (order.command.empty() || order.command.front().empty()) refuse("a tunnel without a command");
  return order;
}

std::string encode_tunnel_output(const TunnelOutput& output) {
  return BodyWriter()
      .u32(output.tunnel)
      .u8(static_cast<std::uint8_t>(output.stream))
      .text(output.bytes)
      .take();
}

TunnelOutput decode_tunnel_output(std::string_view bytes) {
  BodyReader body(bytes);
  TunnelOutput output;
  output.tunnel = body.u32();
  const std::uint8_t stream = body.u8();
  if (stream != 1 && stream != 2) refuse("a tunnel has no stream " + std::to_string(stream));
  output.stream = static_cast<TunnelStream>(stream);
  output.bytes = body.text();
  check_end(body);
  return output;
}

std::string encode_tunnel_end(const TunnelEnd& end) {
  return BodyWriter()
      .u32(end.tunnel)
      .u8(static_cast<std::uint8_t>(end.how))
      .u32(end.value)
      .text(end.reason)
      .take();
}

TunnelEnd decode_tunnel_end(std::string_view bytes) {
  BodyReader body(bytes);
  TunnelEnd end;
  end.tunnel = body.u32();
  const std::uint8_t how = body.u8();
  if (how > static_cast<std::uint8_t>(TunnelEnd::How::kNotStarted)) refuse("no such end");
  end.how = static_cast<TunnelEnd::How>(how);
  end.value = body.u32();
  end.reason = body.text();
  check_end(body);
  return end;
}

std::string encode_tunnel_text(const TunnelText& text) {
  return BodyWriter().u32(text.tunnel).text(text.text).take();
}

TunnelText decode_tunnel_text(std::string_view bytes) {
  BodyReader body(bytes);
  TunnelText text;
  text.tunnel = body.u32();
  text.text = body.text();
  check_end(body);
  return text;
}

}  // namespace chainmail::launch
