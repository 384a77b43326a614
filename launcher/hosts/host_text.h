// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What all parsers of hosts share: places in a text, names, numbers, and hosts that add up. What
// could mean two things is refused, never guessed.
//
// Pure functions and values, thread-safe.

#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "launcher/job/host.h"

namespace chainmail::launch {

/// The hosts of the job cannot be had: exit code 2, nothing was started.
class HostsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// `what()` is "<file>:<line>:<column>: <reason>; <what to try>". Lines and columns count from 1,
/// columns in bytes.
class HostfileError : public HostsError {
 public:
  HostfileError(const std::string& where, std::size_t line, std::size_t column,
                const std::string& reason);
  std::size_t line() const noexcept { return line_; }
  std::size_t column() const noexcept { return column_; }

 private:
  std::size_t line_;
  std::size_t column_;
};

/// More slots than this on one host are taken for a mistake, such as a port.
inline constexpr int kMaxSlotsPerHost = 1024;
/// More hosts than this are a mistake in a range.
inline constexpr std::size_t kMaxHosts = 65536;

/// The place that a message points at.
struct Cursor {
  const std::string& where;
  std::size_t line;

  /// Throws HostfileError.
  [[noreturn]] void refuse(std::size_t column, const std::string& reason) const;
};

/// A piece of a line and its column, counted from 1.
struct Token {
  std::string_view text;
  std::size_t column;
};

/// Without what a terminal would obey.
[[nodiscard]] std::string printable(std::string_view text);
/// In quotes, cut to 60 bytes, without what a terminal would obey.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// A whole number from `lowest` to `highest`, or HostfileError with `advice` at its end.
[[nodiscard]] int parse_number(const Cursor& cursor, const Token& token, const std::string& what,
                               int lowest, int highest, const std::string& advice);
[[nodiscard]] int parse_slots(const Cursor& cursor, const Token& token, const std::string& what);

/// Refuses what could not stand on a remote shell's command line: a leading '-', and all but
/// letters, digits, '.', '_' and '-'.
void check_name(const Cursor& cursor, const Token& token, const char* what);

/// A host of that name, which has passed check_name().
[[nodiscard]] Host named_host(const Cursor& cursor, const Token& name);

/// Refuses more than kMaxHosts.
void check_hosts(const Cursor& cursor, std::size_t column, std::size_t count);

[[nodiscard]] bool is_ipv6(std::string_view text);

/// Pieces between blanks.
[[nodiscard]] std::vector<Token> blank_separated(std::string_view line);
/// Pieces between `separator`, empty ones too.
[[nodiscard]] std::vector<Token> separated_by(char separator, std::string_view text);
/// Calls `use(cursor, line)` for each line, its end (LF or CRLF) cut off; returns their number.
template <typename Use>
std::size_t for_each_line(std::string_view text, const std::string& where, const Use& use) {
  Cursor cursor{where, 0};
  while (!text.empty()) {
    ++cursor.line;
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    use(cursor, line);
  }
  return cursor.line;
}

/// Hosts in order of first appearance; those named again add their slots.
class HostCollector {
 public:
  /// With `refuses_repeats` a host named again is an error.
  explicit HostCollector(bool refuses_repeats = false) : refuses_repeats_(refuses_repeats) {}
  void add(const Cursor& cursor, std::size_t column, Host host);
  bool empty() const noexcept { return hosts_.empty(); }
  [[nodiscard]] std::vector<Host> take() { return std::move(hosts_); }

 private:
  void add_again(const Cursor& cursor, std::size_t column, const Host& host, Host& same) const;

  bool refuses_repeats_;
  std::vector<Host> hosts_;
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace chainmail::launch
