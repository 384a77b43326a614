// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/report/chart.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <string>

namespace chainmail::internal {
namespace {

int lines_in(const std::string& svg) {
  int lines = 0;
  for (std::size_t at = 0; (at = svg.find("<line ", at)) != std::string::npos; ++at) ++lines;
  return lines;
}

// Also where a step of 1 is lost in rounding, which one curve of equal values has come to.
TEST(Chart, AxesOfEqualValuesHaveAFewTicks) {
  rlimit memory{};
  ASSERT_EQ(getrlimit(RLIMIT_AS, &memory), 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which map terabytes
  const rlimit some{rlim_t{2} << 30, memory.rlim_max};  // whoever draws without end runs out of it
  ASSERT_EQ(setrlimit(RLIMIT_AS, &some), 0);
#endif
  for (const double sign : {1.0, -1.0}) {
    for (double value = 0.001; value < 1e300; value *= 1.37) {
      for (const double other : {value, std::nextafter(value, 1e308), value * (1 + 2e-12)}) {
        const ChartCurve curve{"x", 0, {ChartPoint{1, sign * value}, ChartPoint{2, sign * other}}};
        const int lines = lines_in(draw_chart("", {{"", "", {curve}}}, {}));
        ASSERT_GE(lines, 2 + 1 + 4) << value;  // the frame and the legend; x ticks come on top
        ASSERT_LE(lines, 2 + 1 + 32) << value;
      }
    }
  }
  EXPECT_EQ(setrlimit(RLIMIT_AS, &memory), 0);
}

}  // namespace
}  // namespace chainmail::internal
