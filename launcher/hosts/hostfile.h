// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Reads hostfiles and host lists: the forms of Open MPI, MPICH and Horovod that cannot be
// mistaken for each other. What could mean two things is refused, never guessed.
//
// Pure functions, thread-safe.

#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/host.h"

namespace chainmail::launch {

/// `what()` is "<file>:<line>:<column>: <reason>; <what to try>". Lines and columns count from 1,
/// columns in bytes.
class HostfileError : public std::runtime_error {
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

/// One host per line: `[user@]name[:n] [slots=n] [max_slots=n] [port=n] [user=name]`, comments by
/// `#` and `//`, LF or CRLF. Hosts named again add their slots; order of first appearance.
/// Without a number a line gives one slot. `where` names the file in messages.
[[nodiscard]] std::vector<Host> parse_hostfile(std::string_view text, const std::string& where);

/// `h1:4,h2:4`, `h1,h1,h2`, `user@h1`, `[fd00::5]:2`.
[[nodiscard]] std::vector<Host> parse_host_list(std::string_view text, const std::string& where);

}  // namespace chainmail::launch
