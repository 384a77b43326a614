// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <cmath>
#include <utility>

#include <chainmail/report.h>

#include "plugin/report/chart.h"
#include "plugin/report/files.h"

namespace chainmail {

namespace {

double x_of(const ReportEntry& entry, const std::string& x_name) {
  if (x_name == "epoch") return static_cast<double>(entry.epoch);
  return x_name == "iteration" ? static_cast<double>(entry.iteration) : entry.elapsed_time;
}

}  // namespace

PlotReport::PlotReport(std::string path, std::vector<std::string> names, std::string x_name)
    : path_(std::move(path)), names_(std::move(names)), x_name_(std::move(x_name)) {
  if (x_name_ != "epoch" && x_name_ != "iteration" && x_name_ != "elapsed_time") {
    throw InvalidArgument("a plot over '" + x_name_ + "'; use epoch, iteration or elapsed_time");
  }
  internal::make_folder_of(path_);
}

void PlotReport::report(const ReportEntry& entry) {
  entries_.push_back(entry);
  internal::ChartPanel panel{.title = "", .x_name = x_name_, .curves = {}};
  for (const std::string& name : names_) {
    internal::ChartCurve curve{name, panel.curves.size(), {}};
    for (const ReportEntry& earlier : entries_) {
      auto& point = curve.points.emplace_back();
      const auto found = earlier.values.find(name);
      if (found != earlier.values.end() && std::isfinite(found->second)) {
        point = {x_of(earlier, x_name_), found->second};
      }
    }
    panel.curves.push_back(std::move(curve));
  }
  internal::replace_file(path_, internal::draw_chart("", {panel}, {}));
}

}  // namespace chainmail
