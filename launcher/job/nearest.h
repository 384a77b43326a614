// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What somebody may have meant who has mistyped a name. Pure functions, thread-safe.

#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace chainmail::launch {

/// Letters to change, insert, drop or swap with their neighbour to get from one word to the other
/// (Damerau and Levenshtein's distance, each place edited once).
[[nodiscard]] std::size_t edit_distance(const std::string& a, const std::string& b);

/// The name of at least three letters that looks most like this one; empty: none does.
[[nodiscard]] std::string nearest_of(const std::string& name, std::span<const std::string> known);

}  // namespace chainmail::launch
