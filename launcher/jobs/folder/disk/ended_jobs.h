// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which jobs have ended, without a look into each of their folders: for each an empty file of its
// id in ROOT/ended, made after its final state was written. It saves time and decides nothing: a
// job without one is looked at. Thread-safe.

#pragma once

#include <string>
#include <unordered_set>

namespace chainmail::launch {

/// Makes the file; without one where that cannot be.
void note_ended(const std::string& root, const std::string& id) noexcept;
void forget_ended(const std::string& root, const std::string& id) noexcept;

/// Those that are noted.
[[nodiscard]] std::unordered_set<std::string> noted_as_ended(const std::string& root);

}  // namespace chainmail::launch
