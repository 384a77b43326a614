// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Folders of jobs that were ended as a whole, with those who would have cleared up: by a scheduler
// that kills all processes of a job at once, or with the machine.

#pragma once

#include <string>

namespace chainmail::launch {

/// Removes this user's folders of ours in the places where launchers and agents make them, if the
/// processes they belong to are gone. One process at a time per place; others leave it alone. Never
/// throws.
void remove_stale_folders() noexcept;

/// The same in one folder.
void remove_stale_folders(const std::string& parent) noexcept;

}  // namespace chainmail::launch
