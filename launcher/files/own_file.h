// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files for output in folders where others may write, too: a link that somebody else has put there
// is not followed, nor one that a link of the user's leads to, so that nobody can have a job write
// over its user's files. Thread-safe.

#pragma once

#include <sys/types.h>

#include <string>

#include "base/unique_fd.h"

namespace chainmail::launch {

/// Like openat(folder, name, flags, mode); AT_FDCWD and a path will do. `name`'s last part may be a
/// link of root or of this user, and so may the last part of what that leads to, 40 times. Throws
/// SystemError for one of somebody else (ELOOP), a named pipe (EINVAL) and what open() fails with;
/// `path` is what messages call it.
[[nodiscard]] internal::UniqueFd open_own(int folder, const std::string& name, int flags,
                                          mode_t mode, const std::string& path);

}  // namespace chainmail::launch
