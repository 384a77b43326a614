// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Logging for all libraries and programs, so that glog stays out of every header (torch defines
// LOG and CHECK too). Thread-safe. Lines go to stderr and carry rank and host once they are known.

#pragma once

#include <sstream>
#include <string>

namespace chainmail::internal {

enum class LogLevel { kInfo, kWarning, kError };

/// Sets what every later line of this process is prefixed with, such as "[node1/3]".
void set_log_prefix(std::string prefix);

/// True when lines of `level` are printed: CHAINMAIL_LOG=info|warning|error, default warning.
bool log_enabled(LogLevel level) noexcept;

/// Writes one line. Never throws; usable from destructors.
void log_line(LogLevel level, const std::string& text) noexcept;

/// Collects one line and writes it when it goes out of scope: `LogMessage(kInfo) << "x " << 3;`
class LogMessage {
 public:
  explicit LogMessage(LogLevel level) : level_(level) {}
  LogMessage(const LogMessage&) = delete;
  LogMessage& operator=(const LogMessage&) = delete;
  ~LogMessage() { log_line(level_, text_.str()); }

  template <typename T>
  LogMessage& operator<<(const T& value) {
    text_ << value;
    return *this;
  }

 private:
  LogLevel level_;
  std::ostringstream text_;
};

}  // namespace chainmail::internal
