// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/channel/wire.h"

#include <signal.h>

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

void encode_program(const OrderedProgram& program, BodyWriter& body) {
  body.text(program.working_directory);
  body.u32(static_cast<std::uint32_t>(program.words.size()));
  for (const std::string& word : program.words) body.text(word);
  body.u32(static_cast<std::uint32_t>(program.variables.size()));
  for (const auto& [name, value] : program.variables) body.text(name).text(value);
}

OrderedProgram decode_program(BodyReader& body) {
  OrderedProgram program;
  program.working_directory = body.text();
  const std::uint32_t words = body.u32();
  for (std::uint32_t i = 0; i < words; ++i) program.words.push_back(body.text());
  const std::uint32_t variables = body.u32();
  for (std::uint32_t i = 0; i < variables; ++i) {
    std::string name = body.text();
    program.variables[std::move(name)] = body.text();
  }
  return program;
}

void encode_binding(const Binding& binding, BodyWriter& body) {
  body.u8(static_cast<std::uint8_t>(binding.to)).u32(binding.width);
  body.u8(binding.scatter ? 1 : 0).u8(binding.overload ? 1 : 0);
}

Binding decode_binding(BodyReader& body) {
  Binding binding;
  const std::uint8_t to = body.u8();
  if (to >= kBindToCount) throw SystemError("agent protocol: no such binding", EPROTO);
  binding.to = static_cast<BindTo>(to);
  binding.width = body.u32();
  binding.scatter = body.u8() != 0;
  binding.overload = body.u8() != 0;
  return binding;
}

void check_order(const StartOrder& order) {
  bool is_sound = !order.ranks.empty() && order.world_size >= order.ranks.size();
  for (const OrderedRank& rank : order.ranks) {
    is_sound = is_sound && rank.rank < order.world_size && rank.program < order.programs.size();
  }
  for (const OrderedProgram& program : order.programs) {
    is_sound = is_sound && !program.words.empty();
  }
  for (const std::uint32_t number : order.ignored_signals) {
    is_sound = is_sound && number > 0 && number < NSIG && number != SIGTERM;
  }
  if (!is_sound) throw SystemError("agent protocol: start order that contradicts itself", EPROTO);
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
  body.u32(order.generation).u32(order.world_size).u32(order.node_rank);
  body.u32(static_cast<std::uint32_t>(order.ranks.size()));
  for (const OrderedRank& rank : order.ranks) {
    body.u32(rank.rank).u32(rank.program).u8(rank.has_input ? 1 : 0);
  }
  body.u32(static_cast<std::uint32_t>(order.programs.size()));
  for (const OrderedProgram& program : order.programs) encode_program(program, body);
  encode_binding(order.binding, body);
  body.u32(order.start_timeout_ms);
  body.u32(order.processors);
  body.u32(order.output_window).u8(order.carriage_returns ? 1 : 0).text(order.mpi);
  body.u32(static_cast<std::uint32_t>(order.ignored_signals.size()));
  for (const std::uint32_t number : order.ignored_signals) body.u32(number);
  return body.take();
}

StartOrder decode_order(std::string_view bytes) {
  BodyReader body(bytes);
  StartOrder order;
  order.generation = body.u32();
  order.world_size = body.u32();
  order.node_rank = body.u32();
  const std::uint32_t ranks = body.u32();
  for (std::uint32_t i = 0; i < ranks; ++i) {
    OrderedRank& rank = order.ranks.emplace_back();
    rank.rank = body.u32();
    rank.program = body.u32();
    rank.has_input = body.u8() != 0;
  }
  const std::uint32_t programs = body.u32();
  for (std::uint32_t i = 0; i < programs; ++i) order.programs.push_back(decode_program(body));
  order.binding = decode_binding(body);
  order.start_timeout_ms = body.u32();
  order.processors = body.u32();
  order.output_window = body.u32();
  order.carriage_returns = body.u8() != 0;
  order.mpi = body.text();
  const std::uint32_t signals = body.u32();
  for (std::uint32_t i = 0; i < signals; ++i) order.ignored_signals.push_back(body.u32());
  check_end(body, "start order");
  check_order(order);
  return order;
}

std::string encode_table(const JobTable& table) {
  BodyWriter body;
  body.long_text(encode_welcome(table.welcome));
  body.u32(static_cast<std::uint32_t>(table.mpi_node_names.size()));
  for (const std::string& name : table.mpi_node_names) body.text(name);
  return body.take();
}

JobTable decode_table(std::string_view bytes) {
  BodyReader body(bytes);
  JobTable table;
  table.welcome = internal::decode_welcome(body.text());
  const std::uint32_t names = body.u32();
  for (std::uint32_t i = 0; i < names; ++i) table.mpi_node_names.push_back(body.text());
  check_end(body, "job table");
  return table;
}

std::string encode_exit(const RankExit& exit) {
  return BodyWriter()
      .u32(exit.rank)
      .u8(exit.by_signal ? 1 : 0)
      .u32(exit.value)
      .u8(exit.out_of_memory ? 1 : 0)
      .text(exit.detail)
      .take();
}

RankExit decode_exit(std::string_view bytes) {
  BodyReader body(bytes);
  RankExit exit;
  exit.rank = body.u32();
  exit.by_signal = body.u8() != 0;
  exit.value = body.u32();
  exit.out_of_memory = body.u8() != 0;
  exit.detail = body.text();
  check_end(body, "exit report");
  if (exit.value > (exit.by_signal ? static_cast<std::uint32_t>(SIGRTMAX) : 255U)) {
    throw SystemError("agent protocol: nothing ends with " + std::to_string(exit.value), EPROTO);
  }
  return exit;
}

}  // namespace chainmail::launch
