// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/wire/wire_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace chainmail::internal {

namespace {

struct Candidate {
  ops::WireFormat wire;
  double part;  ///< of float32's bytes
  double rate;  ///< at which a core rounds and widens float32, bytes per second
};

// Those that round least come first. The rates are what processors of 2020 reach beside other work
// (docs/results), on the low side: rounding should be worth its while.
constexpr std::array<Candidate, 3> kCandidates{{
    {ops::WireFormat::kNative, 1.0, std::numeric_limits<double>::infinity()},
    {ops::WireFormat::kFloat16, 0.504, 8e9},
    {ops::WireFormat::kInt8, 0.252, 4e9},
}};
// A step that is this much longer than the shortest is worth less rounding.
constexpr double kNearShortest = 1.03;

const Candidate& candidate_of(ops::WireFormat wire) {
  const auto found = std::ranges::find(kCandidates, wire, &Candidate::wire);
  return found == kCandidates.end() ? kCandidates.front() : *found;
}

}  // namespace

// What a format takes less to travel shortens what is waited for, down to nothing; what it takes
// longer is waited for, since nothing says how long computing would hide it.
ops::WireFormat choose_wire(const WireTimes& times, std::size_t bytes, ops::WireFormat now) {
  if (times.steps <= 0) return now;
  const auto steps = static_cast<double>(times.steps);
  const double computed = std::max(times.step - times.waited, 0.0) / steps;
  const Candidate& current = candidate_of(now);
  const auto predicted = [&](const Candidate& candidate) {
    const double travelled = times.travelled * candidate.part / current.part;
    const double waited = std::max(times.waited + travelled - times.travelled, 0.0) / steps;
    const auto size = static_cast<double>(bytes);
    return computed + waited + size / candidate.rate - size / current.rate;
  };
  double shortest = std::numeric_limits<double>::infinity();
  for (const Candidate& candidate : kCandidates) {
    shortest = std::min(shortest, predicted(candidate));
  }
  for (const Candidate& candidate : kCandidates) {
    if (predicted(candidate) <= shortest * kNearShortest) return candidate.wire;
  }
  return now;
}

std::string describe(const WireTimes& times, std::size_t bytes) {
  const auto milliseconds = [&](double seconds) {
    return std::to_string(std::lround(seconds / static_cast<double>(times.steps) * 1e3)) + " ms";
  };
  return "steps of " + milliseconds(times.step) + " wait " + milliseconds(times.waited) + " for " +
         std::to_string(bytes) + " bytes of gradients";
}

}  // namespace chainmail::internal
