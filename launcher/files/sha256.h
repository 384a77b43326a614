// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// SHA-256 (FIPS 180-4) of texts, to tell one from another later. Of our own, since the launcher
// runs on hosts that have the C library alone. Pure, thread-safe.

#pragma once

#include <string>
#include <string_view>

namespace chainmail::launch {

/// 64 lower-case hexadecimal digits.
[[nodiscard]] std::string sha256_of(std::string_view text);

}  // namespace chainmail::launch
