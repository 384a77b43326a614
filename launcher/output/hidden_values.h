// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Secrets' values in what the launcher itself says, as where it quotes the last lines of a program
// that has failed. Pure, thread-safe.

#pragma once

#include <string>
#include <vector>

#include "launcher/job/options.h"

namespace chainmail::launch {

/// Shorter ones would be found in words that have nothing to do with them.
inline constexpr std::size_t kLeastHiddenBytes = 8;

/// `text` with "[NAME]" in place of each value, also where it stands in JSON, each line of one that
/// has several, without the characters that LastLines leaves out, and the part of a value in which
/// LastLines has cut a line.
[[nodiscard]] std::string without_values(std::string text, const std::vector<HiddenValue>& hidden);

}  // namespace chainmail::launch
