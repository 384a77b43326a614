// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Texts of jobs as people see them: tables, ages, sizes, and nothing that a terminal would obey.
// Pure functions, thread-safe.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chainmail::launch {

/// One line of UTF-8: control characters, those that turn the direction of writing, and bytes that
/// are no UTF-8 become '?', ends of lines and tabs a space.
[[nodiscard]] std::string shown_text(std::string_view text);

/// How many columns of a terminal it takes, if no character takes two.
[[nodiscard]] std::size_t columns_of(std::string_view utf8) noexcept;
/// At most so many columns, with "..." where something is left out.
[[nodiscard]] std::string cut_to(std::string_view utf8, std::size_t columns);

/// "12s", "3m", "5h", "2d"; of the future "0s".
[[nodiscard]] std::string age_text(std::int64_t then_ms, std::int64_t now_ms);
/// UTC, "2026-11-28 10:06:00"; "-" for 0.
[[nodiscard]] std::string time_text(std::int64_t ms);
[[nodiscard]] std::int64_t utc_now_ms() noexcept;

using TableRow = std::vector<std::string>;
/// Columns as wide as their widest cell, two blanks between them, none at the end of a line. Cells
/// become shown_text(); with `most_columns` above 0 the last one is cut.
[[nodiscard]] std::string table_text(const std::vector<TableRow>& rows,
                                     std::size_t most_columns = 0);

/// What `text` has room in: the columns of the terminal that standard output is, 0 of anything
/// else.
[[nodiscard]] std::size_t terminal_columns();

}  // namespace chainmail::launch
