// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/file/text/mistakes.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "launcher/job/nearest.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kMostLines = 100;

std::string with_place(const std::string& file, TextPlace place, const std::string& pointer) {
  const std::string text =
      file + ":" + std::to_string(place.line) + ":" + std::to_string(place.column);
  return pointer.empty() ? text : text + ": " + pointer;
}

}  // namespace

std::string Mistakes::where(const JsonNode& at) const {
  if (at.option.empty()) return with_place(file_, at.place, at.pointer);
  return at.pointer.empty() ? at.option : at.option + ": " + at.pointer;
}

void Mistakes::keep(Weight weight, TextPlace place, std::string line) {
  has_mistake_ = has_mistake_ || weight == Weight::kMistake;
  entries_.push_back({weight, place, std::move(line)});
}

void Mistakes::add(const JsonNode& at, const std::string& message) {
  keep(Weight::kMistake, at.place, where(at) + ": " + message);
}

void Mistakes::add(const JsonProblem& problem) {
  keep(Weight::kMistake, problem.place,
       with_place(file_, problem.place, problem.pointer) + ": " + problem.message);
}

void Mistakes::add(const std::string& where, const std::string& message) {
  keep(Weight::kMistake, {}, where + ": " + message);
}

void Mistakes::warn(const JsonNode& at, const std::string& message) {
  keep(Weight::kWarning, at.place, where(at) + ": " + message);
}

void Mistakes::warn_of_key(const JsonNode& at, const std::string& message) {
  keep(Weight::kKeyWarning, at.place, where(at) + ": " + message);
}

void Mistakes::warn(const std::string& where, const std::string& message) {
  keep(Weight::kWarning, {}, where + ": " + message);
}

void Mistakes::add_all(const Mistakes& other) {
  for (Entry& entry : other.in_order()) keep(entry.weight, {}, std::move(entry.line));
}

std::vector<Mistakes::Entry> Mistakes::in_order() const {
  std::vector<Entry> entries;
  std::set<std::string> known;
  std::copy_if(entries_.begin(), entries_.end(), std::back_inserter(entries),
               [&](const Entry& entry) { return known.insert(entry.line).second; });
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::tie(a.place.line, a.place.column) < std::tie(b.place.line, b.place.column);
  });
  return entries;
}

std::string Mistakes::text() const {
  std::vector<std::string> lines;
  for (Entry& entry : in_order()) {
    if (entry.weight != Weight::kWarning) lines.push_back(std::move(entry.line));
  }
  if (lines.size() > kMostLines) {
    const std::size_t more = lines.size() - kMostLines;
    lines.resize(kMostLines);
    lines.push_back(file_ + ": and " + std::to_string(more) + " more like these");
  }
  return joined(lines, "\n");
}

std::vector<std::string> Mistakes::warnings() const {
  std::vector<std::string> lines;
  for (Entry& entry : in_order()) {
    if (entry.weight != Weight::kMistake) lines.push_back(std::move(entry.line));
  }
  return lines;
}

std::string did_you_mean(std::string_view name, std::span<const std::string> known) {
  // A name of any length would make the table of distances as large.
  constexpr std::size_t kLongestName = 100;
  if (name.size() > kLongestName) return "";
  const std::string nearest = nearest_of(std::string(name), known);
  return nearest.empty() ? "" : ", did you mean '" + nearest + "'?";
}

}  // namespace chainmail::launch
