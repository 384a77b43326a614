// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/report/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>

namespace chainmail::internal {
namespace {

constexpr double kLegendLine = 18;
constexpr double kLeastTickDistance = 45;
constexpr char kGrid[] = "#ddd";
// Distinguishable with red-green colour blindness (Okabe and Ito).
constexpr std::array<const char*, 8> kColors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                "#e69f00", "#56b4e9", "#000000", "#7f7f7f"};

std::string formatted(double value, const char* format) {
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), format, value);
  return text.data();
}

std::string pixel(double value) { return formatted(value, "%.2f"); }

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '&') {
      result += "&amp;";
    } else if (c == '<') {
      result += "&lt;";
    } else if (c == '>') {
      result += "&gt;";
    } else {
      result += c;
    }
  }
  return result;
}

std::string draw_line(double x1, double y1, double x2, double y2, const char* color) {
  return "<line x1=\"" + pixel(x1) + "\" y1=\"" + pixel(y1) + "\" x2=\"" + pixel(x2) + "\" y2=\"" +
         pixel(y2) + "\" stroke=\"" + color + "\"/>\n";
}

std::string draw_text(double x, double y, const char* anchor, const std::string& text) {
  if (text.empty()) return "";
  return "<text x=\"" + pixel(x) + "\" y=\"" + pixel(y) + "\" text-anchor=\"" + anchor + "\">" +
         escaped(text) + "</text>\n";
}

/// From the smallest to the largest value, onto the pixels between `from` and `to`.
class Axis {
 public:
  Axis(double from, double to, bool is_logarithmic)
      : from_(from), to_(to), is_logarithmic_(is_logarithmic) {}

  void take(double value) {
    low_ = std::min(low_, scaled(value));
    high_ = std::max(high_, scaled(value));
  }
  /// After all values, of which there may be none, or equal ones.
  void close() {
    if (!(low_ <= high_)) {
      low_ = 0;
      high_ = 1;
    }
    if (high_ - low_ < 1e-12 * std::max(1.0, std::abs(high_))) {
      // Far enough for steps that numbers of this size can tell apart.
      const double half = std::max(0.5, 1e-9 * std::abs(high_));
      low_ -= half;
      high_ += half;
    }
  }
  double at(double value) const {
    return from_ + (to_ - from_) * (scaled(value) - low_) / (high_ - low_);
  }
  /// 1, 2 or 5 times powers of ten, at most about eight.
  std::vector<double> ticks() const { return is_logarithmic_ ? log_ticks() : linear_ticks(); }

 private:
  double scaled(double value) const { return is_logarithmic_ ? std::log(value) : value; }

  std::vector<double> linear_ticks() const {
    const double power = std::pow(10.0, std::floor(std::log10((high_ - low_) / 5)));
    double step = power;
    for (const double factor : {2.0, 5.0, 10.0}) {
      step = (high_ - low_) / step > 8 ? power * factor : step;
    }
    constexpr int kMost = 16;  // whatever rounding does
    const double first = std::ceil(low_ / step - 1e-9);
    std::vector<double> values;
    for (int i = 0; i < kMost && (first + i) * step <= high_ + 1e-9 * step; ++i) {
      values.push_back((first + i) * step);
    }
    return values;
  }
  std::vector<double> log_ticks() const {
    std::vector<double> values;
    const bool is_wide = high_ - low_ > std::log(300.0);
    for (int exponent = -6; exponent <= 12; ++exponent) {
      for (const double digit : {1.0, 2.0, 5.0}) {
        const double value = digit * std::pow(10.0, exponent);
        const bool is_inside = std::log(value) >= low_ - 1e-9 && std::log(value) <= high_ + 1e-9;
        if (is_inside && (digit == 1.0 || !is_wide)) values.push_back(value);
      }
    }
    return values;
  }

  double from_;
  double to_;
  bool is_logarithmic_;
  double low_ = std::numeric_limits<double>::infinity();
  double high_ = -std::numeric_limits<double>::infinity();
};

std::string draw_curve(const ChartCurve& curve, const Axis& x, const Axis& y, const char* color) {
  std::string path;
  std::string dots;
  bool is_joined = false;
  for (const auto& point : curve.points) {
    if (point) {
      const std::string px = pixel(x.at(point->x));
      const std::string py = pixel(y.at(point->y));
      path += (is_joined ? "L" : "M") + px + " " + py + " ";
      dots += "<circle cx=\"" + px + "\" cy=\"" + py + "\" r=\"2.5\" fill=\"" + color + "\"/>\n";
    }
    is_joined = point.has_value();
  }
  return "<path d=\"" + path + "\" fill=\"none\" stroke=\"" + color + "\" stroke-width=\"2\"/>\n" +
         dots;
}

std::string draw_panel(const ChartPanel& panel, const ChartLayout& layout, double begin) {
  const double right = layout.width - layout.right;
  const double top = begin + layout.top;
  const double bottom = begin + layout.panel_height - layout.bottom;
  Axis x(layout.left, right, layout.is_logarithmic);
  Axis y(bottom, top, layout.is_logarithmic);
  std::vector<double> xs;
  for (const ChartCurve& curve : panel.curves) {
    for (const auto& point : curve.points) {
      if (!point) continue;
      x.take(point->x);
      y.take(point->y);
      xs.push_back(point->x);
    }
  }
  x.close();
  y.close();
  std::string svg = draw_text(layout.left, top - 12, "start", panel.title);
  for (const double tick : y.ticks()) {
    svg += draw_line(layout.left, y.at(tick), right, y.at(tick), kGrid) +
           draw_text(layout.left - 6, y.at(tick) + 4, "end", chart_number(tick));
  }
  std::sort(xs.begin(), xs.end());
  double last = -kLeastTickDistance;
  for (const double tick : layout.x_text ? xs : x.ticks()) {
    const double place = x.at(tick);
    if (place - last < kLeastTickDistance) continue;
    last = place;
    svg += draw_line(place, top, place, bottom, kGrid) +
           draw_text(place, bottom + 18, "middle",
                     layout.x_text ? layout.x_text(tick) : chart_number(tick));
  }
  svg += draw_line(layout.left, top, layout.left, bottom, "#444") +
         draw_line(layout.left, bottom, right, bottom, "#444") +
         draw_text((layout.left + right) / 2, bottom + layout.bottom - 10, "middle", panel.x_name);
  double legend = top + 10;
  for (const ChartCurve& curve : panel.curves) {
    const char* const color = kColors[curve.color % kColors.size()];
    svg += draw_curve(curve, x, y, color) +
           draw_line(layout.width - 60, legend, layout.width - 30, legend, color) +
           draw_text(layout.width - 66, legend + 4, "end", curve.name);
    legend += kLegendLine;
  }
  return svg;
}

}  // namespace

std::string chart_number(double value) { return formatted(value, "%.6g"); }

std::string draw_chart(const std::string& heading, const std::vector<ChartPanel>& panels,
                       const ChartLayout& layout) {
  double top = layout.header;
  std::string body = draw_text(layout.left, 20, "start", heading);
  for (const ChartPanel& panel : panels) {
    body += draw_panel(panel, layout, top);
    top += layout.panel_height;
  }
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + pixel(layout.width) +
         "\" height=\"" + pixel(top) +
         "\" font-family=\"sans-serif\" font-size=\"12\">\n"
         "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n" +
         body + "</svg>\n";
}

}  // namespace chainmail::internal
