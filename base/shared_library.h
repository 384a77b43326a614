// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Opens the libraries of ours that are loaded on demand (MPI, CUDA).
//
// Any thread.

#pragma once

#include <string>

namespace chainmail::internal {

/// Opens `file` in the folder of the library or program that `code` lies in, in ../lib beside a
/// program's, or where the system looks. Never unloaded again: MPI and CUDA leave threads and
/// handlers behind. Null when it cannot be; `path` is what was opened, `reasons` why not.
[[nodiscard]] void* open_library_beside(const void* code, const std::string& file,
                                        std::string& path, std::string& reasons);

}  // namespace chainmail::internal
