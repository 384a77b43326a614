// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/report/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <utility>

namespace chainmail::bench {
namespace {

constexpr double kWidth = 900;
constexpr double kPanelHeight = 320;
constexpr double kLeft = 80;
constexpr double kRight = 190;  // the legend's
constexpr double kTop = 40;
constexpr double kBottom = 50;
constexpr double kHeaderHeight = 30;
// Okabe and Ito's, which the colour-blind can tell apart.
constexpr std::array<const char*, 8> kColours = {"#000000", "#d55e00", "#0072b2", "#009e73",
                                                 "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f"};

struct Point {
  double x = 0.0;
  double y = 0.0;
};

struct Line {
  std::string name;
  std::size_t colour = 0;
  std::vector<Point> points;
};

std::string number(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", value);
  return text.data();
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '<') {
      result += "&lt;";
    } else if (c == '&') {
      result += "&amp;";
    } else {
      result += c;
    }
  }
  return result;
}

// 4, 64K, 25M
std::string size_name(double bytes) {
  const std::array<const char*, 4> units = {"", "K", "M", "G"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < units.size()) {
    bytes /= 1024;
    ++unit;
  }
  return number(bytes) + units[unit];
}

/// One logarithmic axis onto pixels.
class Axis {
 public:
  Axis(double low, double high, double from, double to)
      : low_(std::log(low)), high_(std::log(high)), from_(from), to_(to) {
    if (high_ - low_ < 1e-9) {
      low_ -= 0.5;
      high_ += 0.5;
    }
  }
  double at(double value) const {
    return from_ + (std::log(value) - low_) / (high_ - low_) * (to_ - from_);
  }
  // 1, 2, 5, 10, ... or, where that were too many, powers of ten.
  std::vector<double> ticks() const {
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

 private:
  double low_;
  double high_;
  double from_;
  double to_;
};

std::string text_at(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" +
         escaped(text) + "</text>\n";
}

std::string stroke(double x1, double y1, double x2, double y2, const char* style) {
  return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) +
         "\" y2=\"" + number(y2) + "\" " + style + "/>\n";
}

std::string draw_line(const Line& line, const Axis& x, const Axis& y, int place, double top) {
  const char* colour = kColours[line.colour % kColours.size()];
  std::string points;
  std::string marks;
  for (const Point& point : line.points) {
    points += number(x.at(point.x)) + "," + number(y.at(point.y)) + " ";
    marks += "<circle cx=\"" + number(x.at(point.x)) + "\" cy=\"" + number(y.at(point.y)) +
             "\" r=\"3\" fill=\"" + colour + "\"/>\n";
  }
  const double legend_x = kWidth - kRight + 15;
  const double legend_y = top + kTop + 18.0 * place + 8;
  return "<polyline fill=\"none\" stroke=\"" + std::string(colour) +
         "\" stroke-width=\"1.5\" points=\"" + points + "\"/>\n" + marks +
         stroke(legend_x, legend_y - 4, legend_x + 20, legend_y - 4,
                ("stroke-width=\"2\" stroke=\"" + std::string(colour) + "\"").c_str()) +
         text_at(legend_x + 26, legend_y, "start", line.name);
}

std::string draw_panel(const std::string& title, const std::vector<Line>& lines, double top) {
  std::vector<double> xs;
  std::vector<double> ys;
  for (const Line& line : lines) {
    for (const Point& point : line.points) {
      xs.push_back(point.x);
      ys.push_back(point.y);
    }
  }
  if (xs.empty()) return "";
  const auto [x_low, x_high] = std::minmax_element(xs.begin(), xs.end());
  const auto [y_low, y_high] = std::minmax_element(ys.begin(), ys.end());
  const Axis x(*x_low, *x_high, kLeft, kWidth - kRight);
  const Axis y(*y_low / 1.2, *y_high * 1.2, top + kPanelHeight - kBottom, top + kTop);

  constexpr char kGrid[] = "stroke=\"#dddddd\"";
  std::string svg = text_at(kLeft, top + kTop - 12, "start", title);
  for (const double value : y.ticks()) {
    svg += stroke(kLeft, y.at(value), kWidth - kRight, y.at(value),
                  value == 1.0 ? "stroke=\"#888888\"" : kGrid);
    svg += text_at(kLeft - 8, y.at(value) + 4, "end", number(value));
  }
  std::sort(xs.begin(), xs.end());
  double last = -100;
  for (const double value : xs) {
    if (x.at(value) - last < 45) continue;
    last = x.at(value);
    svg += stroke(last, top + kTop, last, top + kPanelHeight - kBottom, kGrid);
    svg += text_at(last, top + kPanelHeight - kBottom + 18, "middle", size_name(value));
  }
  svg += text_at((kLeft + kWidth - kRight) / 2, top + kPanelHeight - 12, "middle", "bytes");
  int place = 0;
  for (const Line& line : lines) svg += draw_line(line, x, y, place++, top);
  return svg;
}

// One line per contestant; `value` of (ours, it).
template <typename Value>
std::vector<Line> lines_of(const std::vector<Measured>& measured, const std::string& op,
                           std::size_t first, Value value) {
  std::vector<Line> lines;
  for (const Measured& size : measured) {
    if (size.op != op) continue;
    for (std::size_t i = first; i < size.results.size(); ++i) {
      if (lines.size() <= i - first) lines.push_back({size.results[i].name, i, {}});
      const double y = value(size.results.front(), size.results[i]);
      if (size.bytes > 0 && y > 0 && std::isfinite(y)) {
        lines[i - first].points.push_back({static_cast<double>(size.bytes), y});
      }
    }
  }
  return lines;
}

}  // namespace

std::string plot_svg(const RunFacts& facts, const std::vector<Measured>& measured) {
  std::vector<std::string> operations;
  for (const Measured& size : measured) {
    if (operations.empty() || operations.back() != size.op) operations.push_back(size.op);
  }
  std::string body = text_at(kLeft, 20, "start",
                             std::to_string(facts.ranks) + " ranks, " + facts.topology + "; " +
                                 facts.machine.processor + "; commit " + facts.machine.commit +
                                 ", " + facts.machine.date);
  double top = kHeaderHeight;
  for (const std::string& op : operations) {
    body += draw_panel(
        op + ": time (us), lower is better",
        lines_of(measured, op, 0, [](const Result&, const Result& it) { return it.timing.median; }),
        top);
    top += kPanelHeight;
    const auto ratio_lines = lines_of(measured, op, 1, [](const Result& ours, const Result& it) {
      return it.timing.median / ours.timing.median;
    });
    if (ratio_lines.empty()) continue;
    body += draw_panel(op + ": time / ours, higher is better for ours", ratio_lines, top);
    top += kPanelHeight;
  }
  const std::string size = "width=\"" + number(kWidth) + "\" height=\"" + number(top) + "\"";
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" " + size +
         " font-family=\"sans-serif\" font-size=\"12\">\n<rect " + size + " fill=\"white\"/>\n" +
         body + "</svg>\n";
}

}  // namespace chainmail::bench
