// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Folders that agents make for a job and whose names begin with the agent's marker, so that others
// can remove them when the agent could not.

#pragma once

#include <string>
#include <vector>

namespace chainmail::launch {

/// Makes one (0700) below `parent`, which is a folder that has passed trusted_folder(). Empty, and
/// errno set, where it cannot be made.
[[nodiscard]] std::string make_agent_folder(const std::string& parent, const std::string& marker,
                                            const std::string& kind);

/// Removes a folder with all that is in it, as far as that goes; nothing for an empty path.
void remove_folder(const std::string& path) noexcept;

/// Removes this user's folders below `parent`, if it is one that nobody else could replace them in
/// (staging/trusted_path.h), that are called MARKER, `kind`, and anything, of
/// every one of the `markers`. Never throws.
void remove_agent_folders(const std::string& parent, const std::string& kind,
                          const std::vector<std::string>& markers) noexcept;

}  // namespace chainmail::launch
