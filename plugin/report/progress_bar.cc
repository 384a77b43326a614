// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ostream>
#include <string_view>

#include <unistd.h>

#include <chainmail/error.h>
#include <chainmail/report.h>

#include "plugin/job/environment/env.h"
#include "plugin/job/environment/job_info.h"

namespace chainmail {

namespace {

constexpr int kBarWidth = 50;
constexpr auto kRedrawInterval = std::chrono::milliseconds{200};
constexpr const char* kClearBelow = "\033[J";
// The launcher passes output on up to a line's end or a carriage return.
constexpr const char* kFourLinesUp = "\033[4A\r";

std::string bar(const char* title, double share) {
  const int marks = std::clamp(static_cast<int>(share * kBarWidth), 0, kBarWidth);
  char text[128];
  std::snprintf(text, sizeof text, "%10s [%s%s] %6.2f%%\n", title,
                std::string(static_cast<std::size_t>(marks), '#').c_str(),
                std::string(static_cast<std::size_t>(kBarWidth - marks), '.').c_str(),
                100.0 * share);
  return text;
}

std::string clock_time(double seconds) {
  const auto whole = static_cast<long long>(std::max(0.0, seconds));
  char text[48];
  std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60, whole % 60);
  return text;
}

}  // namespace

ProgressBar::ProgressBar(std::ostream& out) : out_(out) {}

void ProgressBar::report(const ReportEntry& /*entry*/) {}

void ProgressBar::progress(const TrainingProgress& progress) {
  const auto now = std::chrono::steady_clock::now();
  if (first_iteration_ < 0) {
    first_iteration_ = progress.iteration - 1;
    started_ = now;
    drawn_ = now;
    return;
  }
  const std::int64_t total = progress.iterations_per_epoch * progress.epochs;
  if (now - drawn_ < kRedrawInterval || total <= 0) return;
  drawn_ = now;
  const std::int64_t epoch = progress.iteration / progress.iterations_per_epoch;
  const double in_epoch = static_cast<double>(progress.iteration % progress.iterations_per_epoch) /
                          static_cast<double>(progress.iterations_per_epoch);
  const double seconds = std::chrono::duration<double>(now - started_).count();
  const double speed = static_cast<double>(progress.iteration - first_iteration_ - 1) / seconds;
  std::string text = kClearBelow;
  text += bar("total", static_cast<double>(progress.iteration) / static_cast<double>(total));
  text += bar("this epoch", in_epoch);
  char line[160];
  std::snprintf(line, sizeof line, "%10lld iter, %lld epoch / %lld epochs\n",
                static_cast<long long>(progress.iteration), static_cast<long long>(epoch),
                static_cast<long long>(progress.epochs));
  text += line;
  std::snprintf(line, sizeof line, "%10.5g iters/sec. Estimated time to finish: %s.\n", speed,
                clock_time(static_cast<double>(total - progress.iteration) / speed).c_str());
  text += line;
  out_ << text + kFourLinesUp << std::flush;
}

void ProgressBar::finish() { out_ << kClearBelow << std::flush; }

bool can_draw_progress() {
  const char* const terminal = std::getenv("TERM");
  if (isatty(STDOUT_FILENO) != 1 || terminal == nullptr || std::string_view(terminal) == "dumb") {
    return false;
  }
  // Starters may give a rank a pseudo-terminal of its own while their output is a file; only the
  // launcher says whether people watch it.
  const internal::Environment environment = internal::process_environment();
  if (environment("CHAINMAIL_JOB_FD")) return environment("CHAINMAIL_TERMINAL") == "1";
  try {
    return internal::read_job_info(environment).starter == internal::Starter::kAlone;
  } catch (const InvalidArgument&) {
    return false;  // a starter's variables, but not all of them
  }
}

}  // namespace chainmail
