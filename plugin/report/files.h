// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files that reports write. Free of torch. Thread-safe; throws SystemError that names the file.

#pragma once

#include <string>

namespace chainmail::internal {

/// Makes the folder that `path` lies in.
void make_folder_of(const std::string& path);

/// Writes `text` beside `path` and renames it: a reader never sees half a file.
void replace_file(const std::string& path, const std::string& text);

}  // namespace chainmail::internal
