// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/channel/wire.h"

#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>

#include "base/error.h"

namespace chainmail::launch {
namespace {

constexpr const char* kProtocol = "agent protocol";

void check_order(const StartOrder& order) {
  constexpr std::uint32_t kMostPlaces = 65536;
  bool is_sound = !order.ranks.empty() && order.places <= kMostPlaces &&
                  order.world_size >= order.ranks.size() &&
                  static_cast<std::uint8_t>(order.binding.to) < kBindToCount;
  for (const OrderedRank& rank : order.ranks) {
    is_sound = is_sound && rank.rank < order.world_size && rank.program < order.programs.size() &&
               (order.places == 0 || rank.place < order.places);
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

WindowSize own_window_size() noexcept {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0) return {};
  return {size.ws_row, size.ws_col};
}

AgentHello decode_hello(std::string_view body) {
  return decode_fields<AgentHello>(body, kProtocol);
}

StartOrder decode_order(std::string_view body) {
  auto order = decode_fields<StartOrder>(body, kProtocol);
  check_order(order);
  return order;
}

JobTable decode_table(std::string_view body) { return decode_fields<JobTable>(body, kProtocol); }

RankExit decode_exit(std::string_view body) {
  auto exit = decode_fields<RankExit>(body, kProtocol);
  if (exit.value > (exit.by_signal ? static_cast<std::uint32_t>(SIGRTMAX) : 255U)) {
    throw SystemError("agent protocol: no process ends with " + std::to_string(exit.value), EPROTO);
  }
  return exit;
}

}  // namespace chainmail::launch
