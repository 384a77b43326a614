// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <utility>

#include <chainmail/report.h>

#include "plugin/report/files.h"

namespace chainmail {

namespace {

constexpr double kWidth = 720;
constexpr double kHeight = 440;
constexpr double kLeft = 70;
constexpr double kTop = 20;
constexpr double kPlotWidth = kWidth - kLeft - 20;
constexpr double kPlotHeight = kHeight - kTop - 50;
constexpr double kLegendLine = 18;
// Told apart also by those who do not see red and green (Okabe and Ito).
constexpr std::array<const char*, 7> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#000000"};

std::string number(double value, const char* format = "%.6g") {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string coordinate(double value) { return number(value, "%.2f"); }

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

// From the smallest to the largest value, with ticks at 1, 2 or 5 times a power of ten.
struct Axis {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void take(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  void round() {
    if (!(low <= high)) {
      low = 0;
      high = 1;
    }
    if (high - low < 1e-12 * std::max(1.0, std::abs(high))) {
      low -= 0.5;
      high += 0.5;
    }
  }
  double share(double value) const { return (value - low) / (high - low); }
  std::vector<double> ticks() const {
    const double power = std::pow(10.0, std::floor(std::log10((high - low) / 5)));
    double step = power;
    for (const double factor : {2.0, 5.0, 10.0}) {
      step = (high - low) / step > 8 ? power * factor : step;
    }
    std::vector<double> result;
    const double first = std::ceil(low / step - 1e-9);
    for (double i = first; i * step <= high + 1e-9 * step; ++i) {
      result.push_back(i * step);
    }
    return result;
  }
};

std::string line(double x1, double y1, double x2, double y2, const char* color) {
  return "<line x1=\"" + coordinate(x1) + "\" y1=\"" + coordinate(y1) + "\" x2=\"" +
         coordinate(x2) + "\" y2=\"" + coordinate(y2) + "\" stroke=\"" + color + "\"/>\n";
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + coordinate(x) + "\" y=\"" + coordinate(y) + "\" text-anchor=\"" + anchor +
         "\">" + escaped(text) + "</text>\n";
}

struct Point {
  double x = 0;
  double y = 0;
};
using Curve = std::vector<std::optional<Point>>;  ///< nothing where there is a gap

double pixel_x(const Axis& axis, double value) { return kLeft + kPlotWidth * axis.share(value); }
double pixel_y(const Axis& axis, double value) {
  return kTop + kPlotHeight * (1 - axis.share(value));
}

std::string draw_axes(const Axis& x_axis, const Axis& y_axis, const std::string& x_name) {
  std::string svg;
  for (const double tick : y_axis.ticks()) {
    const double y = pixel_y(y_axis, tick);
    svg += line(kLeft, y, kLeft + kPlotWidth, y, "#ddd") +
           label(kLeft - 6, y + 4, "end", number(tick));
  }
  for (const double tick : x_axis.ticks()) {
    const double x = pixel_x(x_axis, tick);
    svg += line(x, kTop, x, kTop + kPlotHeight, "#ddd") +
           label(x, kTop + kPlotHeight + 18, "middle", number(tick));
  }
  return svg + line(kLeft, kTop, kLeft, kTop + kPlotHeight, "#444") +
         line(kLeft, kTop + kPlotHeight, kLeft + kPlotWidth, kTop + kPlotHeight, "#444") +
         label(kLeft + kPlotWidth / 2, kHeight - 10, "middle", x_name);
}

std::string draw_curve(const Curve& curve, const Axis& x_axis, const Axis& y_axis,
                       const std::string& color) {
  std::string path;
  std::string dots;
  bool is_joined = false;
  for (const std::optional<Point>& point : curve) {
    if (point) {
      const std::string x = coordinate(pixel_x(x_axis, point->x));
      const std::string y = coordinate(pixel_y(y_axis, point->y));
      path += (is_joined ? "L" : "M") + x + " " + y + " ";
      dots += "<circle cx=\"" + x + "\" cy=\"" + y + "\" r=\"2.5\" fill=\"" + color + "\"/>\n";
    }
    is_joined = point.has_value();
  }
  return "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + color + "\" stroke-width=\"2\"/>\n" +
         dots;
}

double x_of(const ReportEntry& entry, const std::string& x_name) {
  if (x_name == "epoch") {
    return static_cast<double>(entry.epoch);
  }
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
  Axis x_axis;
  Axis y_axis;
  std::vector<Curve> curves(names_.size());
  for (const ReportEntry& earlier : entries_) {
    for (std::size_t i = 0; i < names_.size(); ++i) {
      const auto found = earlier.values.find(names_[i]);
      std::optional<Point> point;
      if (found != earlier.values.end() && std::isfinite(found->second)) {
        point = {x_of(earlier, x_name_), found->second};
        x_axis.take(point->x);
        y_axis.take(point->y);
      }
      curves[i].push_back(point);
    }
  }
  x_axis.round();
  y_axis.round();
  std::string svg = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + coordinate(kWidth) +
                    "\" height=\"" + coordinate(kHeight) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
                    draw_axes(x_axis, y_axis, x_name_);
  for (std::size_t i = 0; i < names_.size(); ++i) {
    const char* const color = kColors[i % kColors.size()];
    const double y = kTop + 10 + kLegendLine * static_cast<double>(i);
    svg += draw_curve(curves[i], x_axis, y_axis, color) +
           line(kWidth - 60, y, kWidth - 30, y, color) +
           label(kWidth - 66, y + 4, "end", names_[i]);
  }
  internal::replace_file(path_, svg + "</svg>\n");
}

}  // namespace chainmail
