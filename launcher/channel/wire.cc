// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/channel/wire.h"

#include <cerrno>

#include "base/error.h"

namespace chainmail::launch {

using internal::BodyReader;
using internal::BodyWriter;

namespace {

void check_end(const BodyReader& body, const char* what) {
  if (!body.at_end()) {
    throw SystemError(std::string("agent protocol: bytes after the end of ") + what, EPROTO);
  }
}

}  // namespace

internal::Frame make_frame(AgentMessage type, std::string body) {
  return {static_cast<internal::JobMessage>(type), 0, std::move(body)};
}

AgentMessage type_of(const internal::Frame& frame) {
  return static_cast<AgentMessage>(static_cast<std::uint16_t>(frame.type));
}

std::string encode_hello(const AgentHello& hello) {
  return BodyWriter()
      .text(hello.host)
      .u32(hello.pid)
      .u32(hello.cores)
      .text(hello.addresses)
      .u32(hello.free_port)
      .take();
}

AgentHello decode_hello(std::string_view bytes) {
  BodyReader body(bytes);
  AgentHello hello;
  hello.host = body.text();
  hello.pid = body.u32();
  hello.cores = body.u32();
  hello.addresses = body.text();
  hello.free_port = body.u32();
  check_end(body, "hello");
  return hello;
}

std::string encode_order(const StartOrder& order) {
  BodyWriter body;
  body.u32(order.world_size).u32(order.node_rank).u32(order.first_rank).u32(order.local_size);
  body.text(order.working_directory);
  body.u32(static_cast<std::uint32_t>(order.program.size()));
  for (const std::string& word : order.program) body.text(word);
  body.u32(static_cast<std::uint32_t>(order.variables.size()));
  for (const auto& [name, value] : order.variables) body.text(name).text(value);
  body.u8(order.carriage_returns ? 1 : 0).text(order.mpi);
  return body.take();
}

StartOrder decode_order(std::string_view bytes) {
  BodyReader body(bytes);
  StartOrder order;
  order.world_size = body.u32();
  order.node_rank = body.u32();
  order.first_rank = body.u32();
  order.local_size = body.u32();
  order.working_directory = body.text();
  const std::uint32_t words = body.u32();
  for (std::uint32_t i = 0; i < words; ++i) order.program.push_back(body.text());
  const std::uint32_t variables = body.u32();
  for (std::uint32_t i = 0; i < variables; ++i) {
    std::string name = body.text();
    order.variables[std::move(name)] = body.text();
  }
  order.carriage_returns = body.u8() != 0;
  order.mpi = body.text();
  check_end(body, "start order");
  if (order.program.empty() || order.local_size == 0 || order.world_size < order.local_size ||
      order.first_rank > order.world_size - order.local_size) {
    throw SystemError("agent protocol: start order that contradicts itself", EPROTO);
  }
  return order;
}

std::string encode_exit(const RankExit& exit) {
  return BodyWriter().u32(exit.rank).u8(exit.by_signal ? 1 : 0).u32(exit.value).take();
}

RankExit decode_exit(std::string_view bytes) {
  BodyReader body(bytes);
  RankExit exit;
  exit.rank = body.u32();
  exit.by_signal = body.u8() != 0;
  exit.value = body.u32();
  check_end(body, "exit report");
  return exit;
}

}  // namespace chainmail::launch
