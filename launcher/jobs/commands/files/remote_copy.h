// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files of a job that are on the machine of its launcher alone, by ssh and tar. The main thread's.

#pragma once

#include <string>

#include "launcher/jobs/commands/files/tree_copy.h"

namespace chainmail::launch {

/// Puts what `path` in `folder` of that host leads to into the folder `into`, which is empty; the
/// name that it has there. A path that leads out of the folder is refused over there as well.
/// Throws UsageError for a host's name that ssh could take for something else, and SystemError with
/// what ssh or tar have said; EINTR when interrupted, ETIMEDOUT where nothing came for a minute.
[[nodiscard]] std::string copy_from_host(const std::string& host, const std::string& folder,
                                         const std::string& path, const std::string& into,
                                         const IsInterrupted& is_interrupted);

/// What the host's shell is asked to do. Pure.
[[nodiscard]] std::string sending_script(const std::string& folder, const std::string& path);

}  // namespace chainmail::launch
