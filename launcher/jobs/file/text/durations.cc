// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/text/durations.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;

struct DurationUnit {
  std::string_view name;
  double seconds;
};
constexpr double kDay = 24 * 3600;
constexpr std::array<DurationUnit, 6> kUnits = {
    {{"", 1}, {"ms", 0.001}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", kDay}}};
// ISO 8601's designators, before the 'T' and behind it, each in the order in which they may stand.
constexpr std::array<DurationUnit, 2> kDateUnits = {{{"W", 7 * kDay}, {"D", kDay}}};
constexpr std::array<DurationUnit, 3> kTimeUnits = {{{"H", 3600}, {"M", 60}, {"S", 1}}};

std::optional<milliseconds> in_milliseconds(double seconds) {
  if (!(seconds >= 0) || seconds > std::chrono::duration<double>(kLongestDuration).count()) {
    return std::nullopt;
  }
  return milliseconds(std::llround(seconds * 1000));
}

// Digits, perhaps with a fraction; they are taken from the text.
std::optional<double> take_decimal(std::string_view& text) {
  const std::size_t length = std::min(text.find_first_not_of("0123456789."), text.size());
  double value = 0;
  const char* end = text.data() + length;
  const auto [stop, error] = std::from_chars(text.data(), end, value, std::chars_format::fixed);
  if (length == 0 || stop != end || error != std::errc() || text.front() == '.') {
    return std::nullopt;
  }
  text.remove_prefix(length);
  return value;
}

// "1H30M"; nothing unless each unit is there once at most, and all in order.
std::optional<double> designated_seconds(std::string_view text,
                                         std::span<const DurationUnit> units) {
  double seconds = 0;
  for (const DurationUnit& unit : units) {
    std::string_view rest = text;
    const auto value = take_decimal(rest);
    if (!value || !rest.starts_with(unit.name)) continue;
    seconds += *value * unit.seconds;
    text = rest.substr(unit.name.size());
  }
  return text.empty() ? std::optional(seconds) : std::nullopt;
}

std::optional<double> iso_seconds(std::string_view text) {
  text.remove_prefix(1);
  const std::size_t t = text.find('T');
  const std::string_view date = text.substr(0, t);
  const std::string_view time = t == std::string_view::npos ? "" : text.substr(t + 1);
  if (time.empty() && (date.empty() || t != std::string_view::npos)) return std::nullopt;
  const auto days = designated_seconds(date, kDateUnits);
  const auto rest = designated_seconds(time, kTimeUnits);
  return days && rest ? std::optional(*days + *rest) : std::nullopt;
}

// "12:00:00", "0:10:00.5": below a day.
std::optional<double> clock_seconds(std::string_view text) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() != 3) return std::nullopt;
  const auto hours = whole_number(parts[0]);
  const auto minutes = whole_number(parts[1]);
  std::string_view rest = parts[2];
  const auto seconds = take_decimal(rest);
  if (!hours || !minutes || !seconds || !rest.empty() || *hours < 0 || *hours > 23 ||
      *minutes < 0 || *minutes > 59 || *seconds >= 60) {
    return std::nullopt;
  }
  return *hours * 3600 + *minutes * 60 + *seconds;
}

// Days and what stands between them and the hours: ".", " days, ", " day, ".
std::optional<double> days_and_clock_seconds(std::string_view text) {
  const std::size_t colon = text.find(':');
  for (const std::string_view between : {" days, ", " day, ", "."}) {
    const std::size_t at = text.find(between);
    if (at == std::string_view::npos || at > colon) continue;
    const auto days = whole_number(text.substr(0, at));
    const auto clock = clock_seconds(text.substr(at + between.size()));
    return days && clock && *days >= 0 ? std::optional(*days * kDay + *clock) : std::nullopt;
  }
  return clock_seconds(text);
}

}  // namespace

std::optional<milliseconds> duration_in(std::string_view text) {
  const auto value = take_decimal(text);
  if (!value) return std::nullopt;
  for (const DurationUnit& unit : kUnits) {
    if (text == unit.name) return in_milliseconds(*value * unit.seconds);
  }
  return std::nullopt;
}

std::optional<milliseconds> duration_of_number(std::string_view number) {
  double seconds = 0;
  const char* end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, seconds);
  return stop == end && error == std::errc() ? in_milliseconds(seconds) : std::nullopt;
}

std::optional<milliseconds> batch_ai_duration_in(std::string_view text) {
  const auto seconds = text.starts_with('P') ? iso_seconds(text) : days_and_clock_seconds(text);
  return seconds ? in_milliseconds(*seconds) : std::nullopt;
}

std::string duration_text(milliseconds duration) {
  struct Whole {
    std::int64_t milliseconds;
    const char* name;
  };
  constexpr std::array<Whole, 4> kWhole = {
      {{24 * 3600 * 1000, "d"}, {3600 * 1000, "h"}, {60 * 1000, "m"}, {1000, "s"}}};
  const std::int64_t count = duration.count();
  for (const Whole& unit : kWhole) {
    if (count % unit.milliseconds != 0 || (count == 0 && unit.milliseconds != 1000)) continue;
    return std::to_string(count / unit.milliseconds) + unit.name;
  }
  return std::to_string(count) + "ms";
}

}  // namespace chainmail::launch
