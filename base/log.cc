// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/log.h"

#include <glog/logging.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <utility>

namespace chainmail::internal {
namespace {

LogLevel level_from_environment() noexcept {
  const char* value = std::getenv("CHAINMAIL_LOG");
  if (value == nullptr) return LogLevel::kWarning;
  const std::string_view name(value);
  if (name == "info") return LogLevel::kInfo;
  if (name == "error") return LogLevel::kError;
  return LogLevel::kWarning;
}

LogLevel threshold() noexcept {
  static const LogLevel level = level_from_environment();
  return level;
}

std::mutex& prefix_mutex() {
  static std::mutex mutex;
  return mutex;
}

std::string& prefix() {
  static std::string text;
  return text;
}

// Prints to stderr without touching glog's global flags, which belong to the user's program.
class StderrSink : public google::LogSink {
 public:
  void send(google::LogSeverity severity, const char* /*full_filename*/, const char* base_filename,
            int line, const google::LogMessageTime& time, const char* message,
            std::size_t length) override {
    std::string text = ToString(severity, base_filename, line, time, message, length);
    text += '\n';
    // A pipe that nobody empties must not hold the thread that is about to report an error.
    constexpr int kMostWaitMs = 200;
    pollfd ready{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&ready, 1, kMostWaitMs) == 0) return;
    // One write per line, so that lines of several ranks do not mix.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
  }
};

google::LogSeverity severity(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kInfo:
      return google::GLOG_INFO;
    case LogLevel::kWarning:
      return google::GLOG_WARNING;
    case LogLevel::kError:
      return google::GLOG_ERROR;
  }
  return google::GLOG_ERROR;
}

}  // namespace

void set_log_prefix(std::string text) {
  const std::lock_guard<std::mutex> lock(prefix_mutex());
  prefix() = std::move(text);
}

bool log_enabled(LogLevel level) noexcept {
  return static_cast<int>(level) >= static_cast<int>(threshold());
}

void log_line(LogLevel level, const std::string& text) noexcept {
  if (!log_enabled(level)) return;
  try {
    std::string line;
    {
      const std::lock_guard<std::mutex> lock(prefix_mutex());
      if (!prefix().empty()) line = prefix() + " ";
    }
    line += text;
    StderrSink sink;
    google::LogMessage(__FILE__, __LINE__, severity(level), &sink, false).stream() << line;
  } catch (...) {  // NOLINT(bugprone-empty-catch): a log line is never worth a crash
  }
}

}  // namespace chainmail::internal
