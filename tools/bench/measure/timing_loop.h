// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The loop that times every contestant, MPI's too, so that all are timed alike. No torch.
//
// Not thread-safe; every rank runs it at the same time.

#pragma once

#include <sys/resource.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace chainmail::bench {

/// How often an operation is repeated.
struct Repeats {
  std::int32_t warmup = 5;
  std::int32_t samples = 20;
  std::int32_t batch = 1;  ///< calls per sample, so that the clock does not weigh on short ones
};

/// One round on one rank.
struct Sample {
  std::vector<double> us;  ///< per call; the mean of a batch
  double cpu_s = 0.0;      ///< of all threads of the process, in the timed calls
  double wall_s = 0.0;
};

/// CPU seconds that this process has used.
inline double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

template <typename Call>
Sample time_calls(const Repeats& repeats, Call&& call) {
  using Clock = std::chrono::steady_clock;
  Sample sample;
  sample.us.resize(static_cast<std::size_t>(repeats.samples));
  for (int i = 0; i < repeats.warmup * repeats.batch; ++i) call();
  const double cpu_before = cpu_seconds();
  const auto begin = Clock::now();
  for (double& us : sample.us) {
    const auto start = Clock::now();
    for (int i = 0; i < repeats.batch; ++i) call();
    us = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / repeats.batch;
  }
  sample.wall_s = std::chrono::duration<double>(Clock::now() - begin).count();
  sample.cpu_s = cpu_seconds() - cpu_before;
  return sample;
}

}  // namespace chainmail::bench
