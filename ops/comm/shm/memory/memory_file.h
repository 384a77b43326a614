// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Memory as an unnamed file: how a rank makes it, and how it opens what another process of its node
// offers by a descriptor's number. Thread-safe.

#pragma once

#include <cstddef>
#include <string>

#include "base/unique_fd.h"

namespace chainmail::ops::shm {

/// Of `bytes`, whose size is sealed: a file that nobody can shrink cannot give SIGBUS. All pages
/// are reserved where it `reserves`. Throws SystemError whose text is the call and the reason.
[[nodiscard]] internal::UniqueFd make_memory_file(const char* name, std::size_t bytes,
                                                  bool reserves);

/// Reserves a part. Throws SystemError, as above.
void reserve(const internal::UniqueFd& file, std::size_t begin, std::size_t bytes);

/// Opens the memory file at `path`, "/proc/<pid>/fd/<number>", for reading and writing. By then its
/// owner may have closed it and opened anything else under that number, so nothing is opened that
/// is not a memory file whose size is sealed at `bytes`.
///
/// Throws SystemError whose text is the reason and whose code tells three cases apart: EACCES or
/// EPERM, this process may not look into that one; ENOENT, neither the number nor perhaps the
/// process is there any more; EPROTO, the number leads to something else now.
[[nodiscard]] internal::UniqueFd open_memory_file(const std::string& path, std::size_t bytes);

}  // namespace chainmail::ops::shm
