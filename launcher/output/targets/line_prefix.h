// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What lines begin with. Thread-safe.

#pragma once

#include <string>
#include <string_view>

namespace chainmail::launch {

/// "2026-11-22 09:14:14.123 ", the local time now.
[[nodiscard]] std::string time_prefix();

/// `prefix` before every line of `text`; the first one may go on with a line that has one. A
/// carriage return ends a line as well.
[[nodiscard]] std::string with_prefix(const std::string& prefix, std::string_view text,
                                      bool continues_line);

}  // namespace chainmail::launch
