// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/step/step_times.h"

#include <algorithm>
#include <chrono>

namespace chainmail::bench {

double microseconds_of(const std::function<void()>& work) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::vector<double> step_times(const std::function<double()>& step, std::int64_t steps,
                               Communicator& communicator) {
  std::vector<double> us(static_cast<std::size_t>(steps));
  communicator.barrier();
  for (double& one : us) one = step();
  for (const std::vector<double>& others : communicator.allgather_obj(us)) {
    std::transform(us.begin(), us.end(), others.begin(), us.begin(),
                   [](double own, double other) { return std::max(own, other); });
  }
  return us;
}

}  // namespace chainmail::bench
