// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/machine/rates.h"

#include <ATen/Functions.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/net/socket.h"

namespace chainmail::bench {
namespace {

using Clock = std::chrono::steady_clock;
using internal::UniqueFd;

constexpr std::chrono::milliseconds kStreamTime{400};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Arrays that no cache holds, however many ranks share the machine.
std::int64_t array_elements(int ranks) {
  return std::max<std::int64_t>((std::int64_t{64} << 20) / ranks, std::int64_t{8} << 20);
}

// The best of a few series, each until the last rank has ended its passes.
double stream_gbs(Control& control) {
  constexpr int kPasses = 3;
  const std::int64_t count = array_elements(control.ranks().size);
  at::Tensor a = at::zeros({count}, at::kFloat);
  const at::Tensor b = at::ones({count}, at::kFloat);
  double best = 0.0;
  for (int series = 0; series < 4; ++series) {
    control.barrier();
    const auto start = Clock::now();
    for (int pass = 0; pass < kPasses; ++pass) a.add_(b);
    control.barrier();
    best = std::max(best, 12e-9 * kPasses * static_cast<double>(count) / seconds_since(start));
  }
  std::vector<double> least = {-best};
  control.maximum(least);
  return -least[0] * control.ranks().size;
}

double memcpy_gbs() {
  const auto bytes = static_cast<std::size_t>(array_elements(1)) * 4;
  const std::vector<char> from(bytes, 1);
  std::vector<char> to(bytes, 2);
  double best = 0.0;
  for (int pass = 0; pass < 5; ++pass) {
    const auto start = Clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    best = std::max(best, 2e-9 * static_cast<double>(bytes) / seconds_since(start));
  }
  return best;
}

bool is_ready(int fd, short what) {
  pollfd ready{fd, what, 0};
  return ::poll(&ready, 1, 10000) > 0;
}

void send_stream(const std::string& address) {
  const auto peer = internal::parse_address(address);
  if (!peer) throw InvalidArgument("\"" + address + "\" is no address");
  const UniqueFd fd = internal::start_connect(*peer);
  if (!is_ready(fd.get(), POLLOUT) || internal::connect_error(fd.get()) != 0) {
    throw system_error("the raw socket cannot connect to " + address);
  }
  const std::vector<char> data(std::size_t{1} << 20, 1);
  const auto start = Clock::now();
  while (Clock::now() - start < kStreamTime && is_ready(fd.get(), POLLOUT)) {
    if (::send(fd.get(), data.data(), data.size(), MSG_NOSIGNAL) < 0 && errno != EAGAIN) return;
  }
}

// Bytes per second from the first quarter of the time on: a shaped link lets a burst through first.
double receive_stream(int listener) {
  if (!is_ready(listener, POLLIN)) return 0.0;
  const UniqueFd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  std::vector<char> data(std::size_t{1} << 20);
  const auto begin = Clock::now();
  auto start = begin;
  double bytes = 0.0;
  double seconds = 0.0;
  while (is_ready(fd.get(), POLLIN)) {
    const ssize_t got = ::recv(fd.get(), data.data(), data.size(), 0);
    if (got <= 0) break;
    const auto now = Clock::now();
    if (now - begin < kStreamTime / 4) {
      start = now;
      continue;
    }
    bytes += static_cast<double>(got);
    seconds = std::chrono::duration<double>(now - start).count();
  }
  return seconds > 0 ? bytes / seconds : 0.0;
}

// From rank 0 to the first rank of the second node; with one node from a thread of rank 0.
double socket_gbs(Control& control) {
  const ops::Topology& topology = control.topology();
  const bool has_nodes = topology.node_count() > 1;
  const int receiver = has_nodes ? topology.ranks_of_node(1).front() : 0;
  const int rank = control.ranks().rank;
  UniqueFd listener;
  std::string address;
  if (rank == receiver) {
    const char* interface = std::getenv("CHAINMAIL_INTERFACE");
    listener = internal::listen_on(
        has_nodes ? internal::choose_address(interface != nullptr ? interface : "")
                  : internal::loopback_address(),
        1);
    address = internal::local_address(listener.get()).to_string();
  }
  address = control.collect(address)[static_cast<std::size_t>(receiver)];
  double rate = 0.0;
  std::thread sender;
  if (rank == 0 && has_nodes) send_stream(address);
  if (rank == 0 && !has_nodes) sender = std::thread([&] { send_stream(address); });
  if (rank == receiver) rate = receive_stream(listener.get());
  if (sender.joinable()) sender.join();
  return 1e-9 * control.sum(rate);
}

}  // namespace

void measure_rates(Control& control, Machine& machine) {
  machine.stream_gbs = stream_gbs(control);
  if (control.ranks().rank == 0) machine.memcpy_gbs = memcpy_gbs();
  control.barrier();
  machine.socket_gbs = socket_gbs(control);
}

}  // namespace chainmail::bench
