// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <cstdio>
#include <ostream>

#include <chainmail/report.h>

namespace chainmail {

namespace {

constexpr std::size_t kMinimumWidth = 10;
constexpr const char* kGap = "  ";

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::size_t width_of(const std::string& column) { return std::max(kMinimumWidth, column.size()); }

std::string in_short(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string cell(const ReportEntry& entry, const std::string& column) {
  if (column == "epoch") return std::to_string(entry.epoch);
  if (column == "iteration") return std::to_string(entry.iteration);
  if (column == "elapsed_time") return in_short(entry.elapsed_time);
  const auto found = entry.values.find(column);
  return found == entry.values.end() ? "" : in_short(found->second);
}

}  // namespace

Report::~Report() = default;
void Report::progress(const TrainingProgress& /*progress*/) {}
void Report::finish() {}

PrintReport::PrintReport(std::vector<std::string> columns, std::ostream& out, bool clear_below)
    : columns_(std::move(columns)), out_(out), clear_below_(clear_below) {}

void PrintReport::report(const ReportEntry& entry) {
  std::string text;
  if (is_first_) {
    is_first_ = false;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      text += (i == 0 ? "" : kGap) + padded(columns_[i], width_of(columns_[i]));
    }
    text += '\n';
  }
  if (clear_below_) text += "\033[J";
  for (const std::string& column : columns_) {
    text += padded(cell(entry, column), width_of(column)) + kGap;
  }
  // One write per line, so that lines of several programs do not mix.
  out_ << text + '\n' << std::flush;
}

ReportList::ReportList(const Communicator& communicator) : is_active_(communicator.rank() == 0) {}

void ReportList::report(const ReportEntry& entry) {
  for (const auto& report : reports_) report->report(entry);
}

void ReportList::progress(const TrainingProgress& progress) {
  for (const auto& report : reports_) report->progress(progress);
}

void ReportList::finish() {
  for (const auto& report : reports_) report->finish();
}

}  // namespace chainmail
