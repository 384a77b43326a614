// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/report/plot.h"

#include <array>
#include <cmath>
#include <utility>

#include "plugin/report/chart.h"

namespace chainmail::bench {
namespace {

using internal::ChartCurve;
using internal::ChartPanel;

// 4, 64K, 25M
std::string size_name(double bytes) {
  const std::array<const char*, 4> units = {"", "K", "M", "G"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return internal::chart_number(bytes) + units[unit];
}

// One curve per contestant; `value` of (ours, it).
template <typename Value>
std::vector<ChartCurve> curves_of(const std::vector<Measured>& measured, const std::string& op,
                                  std::size_t first, Value value) {
  std::vector<ChartCurve> curves;
  for (const Measured& size : measured) {
    if (size.op != op) continue;
    for (std::size_t i = first; i < size.results.size(); ++i) {
      if (curves.size() <= i - first) curves.push_back({size.results[i].name, i, {}});
      const double y = value(size.results.front(), size.results[i]);
      if (size.bytes > 0 && y > 0 && std::isfinite(y)) {
        curves[i - first].points.push_back({{static_cast<double>(size.bytes), y}});
      }
    }
  }
  return curves;
}

}  // namespace

std::string plot_svg(const RunFacts& facts, const std::vector<Measured>& measured) {
  std::vector<std::string> operations;
  for (const Measured& size : measured) {
    if (operations.empty() || operations.back() != size.op) operations.push_back(size.op);
  }
  std::vector<ChartPanel> panels;
  for (const std::string& op : operations) {
    panels.push_back({op + ": time (us), lower is better", "bytes",
                      curves_of(measured, op, 0,
                                [](const Result&, const Result& it) { return it.timing.median; })});
    auto ratios = curves_of(measured, op, 1, [](const Result& ours, const Result& it) {
      return it.timing.median / ours.timing.median;
    });
    if (ratios.empty()) continue;
    panels.push_back({op + ": time / ours, higher is better for ours", "bytes", std::move(ratios)});
  }
  return internal::draw_chart(std::to_string(facts.ranks) + " ranks, " + facts.topology + "; " +
                                  facts.machine.processor + "; commit " + facts.machine.commit +
                                  ", " + facts.machine.date,
                              panels,
                              {.width = 900,
                               .panel_height = 320,
                               .left = 80,
                               .right = 190,  // the legend's
                               .top = 40,
                               .header = 30,
                               .is_logarithmic = true,
                               .x_text = size_name});
}

}  // namespace chainmail::bench
