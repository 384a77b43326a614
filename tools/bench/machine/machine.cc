// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/machine/machine.h"

#include <sched.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>
#include <vector>

#include "commit.h"

namespace chainmail::bench {
namespace {

// The cores that the container or batch system leaves us; a launcher may have bound this process
// to a few of them, which does not count here.
std::vector<std::size_t> cores_of_job() {
  std::vector<std::size_t> cores;
  std::thread([&] {
    use_all_cores();
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    ::sched_getaffinity(0, sizeof(allowed), &allowed);
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &allowed)) cores.push_back(core);
    }
  }).join();
  return cores;
}

void pin_to(std::size_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  ::sched_setaffinity(0, sizeof(set), &set);
}

// Best of several short series, since a neighbour may take a core away for a while.
double cache_line_round_trip_ns(std::size_t core_a, std::size_t core_b) {
  constexpr int kTrips = 2000;
  constexpr int kSeries = 20;
  alignas(128) std::atomic<int> ball{0};
  double best_ns = 1e9;
  std::thread other([&] {
    pin_to(core_b);
    for (int i = 0; i < kTrips * kSeries; ++i) {
      while (ball.load(std::memory_order_acquire) != 2 * i + 1) {
      }
      ball.store(2 * i + 2, std::memory_order_release);
    }
  });
  std::thread one([&] {
    pin_to(core_a);
    int i = 0;
    for (int series = 0; series < kSeries; ++series) {
      const auto start = std::chrono::steady_clock::now();
      for (int trip = 0; trip < kTrips; ++trip, ++i) {
        ball.store(2 * i + 1, std::memory_order_release);
        while (ball.load(std::memory_order_acquire) != 2 * i + 2) {
        }
      }
      const std::chrono::duration<double, std::nano> elapsed =
          std::chrono::steady_clock::now() - start;
      best_ns = std::min(best_ns, elapsed.count() / kTrips);
    }
  });
  one.join();
  other.join();
  return best_ns;
}

// As Linux says it; other architectures have no such line.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t value = line.find(": ");
    if (line.starts_with("model name") && value != std::string::npos) return line.substr(value + 2);
  }
  return "an unnamed processor";
}

std::string now() {
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &utc);
  return text.data();
}

}  // namespace

Machine examine_machine() {
  Machine machine;
  machine.version = CHAINMAIL_VERSION;
  machine.commit = CHAINMAIL_COMMIT;
  machine.date = now();
  utsname system{};
  if (::uname(&system) == 0) {
    machine.host = system.nodename;
    machine.kernel = system.release;
  }
  machine.processor = processor_name();
  const std::vector<std::size_t> cores = cores_of_job();
  machine.cores = static_cast<int>(cores.size());
  ::getloadavg(&machine.load, 1);
  if (cores.size() >= 2) machine.cache_line_ns = cache_line_round_trip_ns(cores[0], cores[1]);
  return machine;
}

void use_all_cores() {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (std::size_t core = 0; core < CPU_SETSIZE; ++core) CPU_SET(core, &all);
  ::sched_setaffinity(0, sizeof(all), &all);
}

}  // namespace chainmail::bench
