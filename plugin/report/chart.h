// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Curves as a picture (SVG): the training reports' and the benchmark's. Free of torch.
//
// Pure functions.

#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace chainmail::internal {

struct ChartPoint {
  double x = 0;
  double y = 0;
};

struct ChartCurve {
  std::string name;
  std::size_t color = 0;                          ///< its place among the colors
  std::vector<std::optional<ChartPoint>> points;  ///< nothing where there is a gap
};

struct ChartPanel {
  std::string title;
  std::string x_name;
  std::vector<ChartCurve> curves;
};

/// In pixels.
struct ChartLayout {
  double width = 720;
  double panel_height = 440;
  double left = 70;
  double right = 20;
  double top = 20;
  double bottom = 50;
  double header = 0;  ///< above the first panel
  bool is_logarithmic = false;
  /// Set: ticks of the x axis are at the points, with these texts; unset: at round numbers.
  std::function<std::string(double)> x_text;
};

/// "%.6g"
[[nodiscard]] std::string chart_number(double value);

/// The panels one below the other, with a legend at the right.
[[nodiscard]] std::string draw_chart(const std::string& heading,
                                     const std::vector<ChartPanel>& panels,
                                     const ChartLayout& layout);

}  // namespace chainmail::internal
