// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/collectives/measure_tuning.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

namespace chainmail::ops {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::size_t, 6> kSizes = {4096,      16384,      65536,
                                               256 << 10, 1024 << 10, 4096 << 10};
constexpr std::array<Algorithm, 2> kAlgorithms = {Algorithm::kHierarchical,
                                                  Algorithm::kTwoDimensional};
constexpr int kRepeats = 3;
// A table should not change from run to run by noise: the one with fewer messages needs not win.
constexpr double kTie = 0.97;

using Times = std::array<double, kAlgorithms.size()>;  // microseconds

void all_reduce(const std::function<void(const Collective&)>& run, Algorithm algorithm,
                std::vector<float>& data) {
  Collective collective;
  collective.algorithm = algorithm;
  collective.wire = WireFormat::kNative;
  collective.count = data.size();
  collective.output = reinterpret_cast<std::byte*>(data.data());
  run(collective);
}

// The best of some, by this rank's clock.
double time_of(const std::function<void(const Collective&)>& run, Algorithm algorithm,
               std::vector<float>& data) {
  double best = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const auto begin = Clock::now();
    all_reduce(run, algorithm, data);
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    best = repeat == 0 ? us : std::min(best, us);
  }
  return best;
}

// The slowest rank's times, on all ranks.
void agree(const std::function<void(const Collective&)>& run, Times& times) {
  Collective collective;
  collective.algorithm = Algorithm::kHierarchical;
  collective.dtype = DataType::kFloat64;
  collective.reduce_op = ReduceOp::kMax;
  collective.count = times.size();
  collective.output = reinterpret_cast<std::byte*>(times.data());
  run(collective);
}

}  // namespace

Tuning measure_tuning(const std::function<void(const Collective&)>& run,
                      std::chrono::microseconds limit) {
  std::vector<float> data(1);
  for (const Algorithm algorithm : kAlgorithms) all_reduce(run, algorithm, data);  // connects

  Tuning tuning;
  double left = static_cast<double>(limit.count());
  double next = 0;  // what the next size will take, at most
  for (const std::size_t bytes : kSizes) {
    if (next > left) break;
    data.resize(bytes / sizeof(float));
    Times times{};
    for (std::size_t i = 0; i < times.size(); ++i) times[i] = time_of(run, kAlgorithms[i], data);
    agree(run, times);
    const double spent = kRepeats * (times[0] + times[1]);
    left -= spent;
    next = 4 * spent;
    const Algorithm best = times[1] < kTie * times[0] ? kAlgorithms[1] : kAlgorithms[0];
    if (tuning.empty()) {
      tuning.push_back({0, best});
    } else if (tuning.back().algorithm != best) {
      tuning.push_back({bytes, best});
    }
  }
  return tuning;
}

}  // namespace chainmail::ops
