// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Writing to whatever there is behind a descriptor. Thread-safe.

#pragma once

#include <string>
#include <string_view>

namespace chainmail::launch {

/// All of `text`, however long its reader takes; also where the descriptor is non-blocking. 0, or
/// the errno of what could not be written.
[[nodiscard]] int write_all(int fd, std::string_view text) noexcept;

/// What messages call an open file: its path, or `otherwise` where that is not known.
[[nodiscard]] std::string name_of_open_file(int fd, const std::string& otherwise);

}  // namespace chainmail::launch
