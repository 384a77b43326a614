// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How much longer than on an idle machine things may take here and now, for tests that bound a
// time.
//
// Thread-safe. A bound says what an idle machine needs and some more; patient() stretches it by
// what a fixed piece of work is held up by other processes, and by what sanitizers cost:
//
//   EXPECT_LT(watch.elapsed(), patient(3s));
//
// Better than a bound is a limit that is so long that what waited for it is told from what did not
// by any clock. patience.py and patience.sh are the same for tests in Python and shell.

#pragma once

#include <chrono>

namespace chainmail {

/// At least 1. The larger of what was measured before in this process and what is measured now,
/// which takes 20 ms of processor time, at most once a second.
double patience();

/// `bound`, stretched by patience().
template <typename Rep, typename Period>
std::chrono::duration<double> patient(std::chrono::duration<Rep, Period> bound) {
  return bound * patience();
}

/// The time since it was made.
class Stopwatch {
 public:
  Stopwatch() { patience(); }  // before the clock starts: how busy the machine is at the beginning
  std::chrono::duration<double> elapsed() const {
    return std::chrono::steady_clock::now() - start_;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace chainmail
