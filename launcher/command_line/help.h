// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What --help and --help-all print, made from the table of options. Pure, thread-safe.

#pragma once

#include <string>

namespace chainmail::launch {

/// One screen: what people use every day.
[[nodiscard]] std::string usage_text();

/// Every option.
[[nodiscard]] std::string full_usage_text();

}  // namespace chainmail::launch
