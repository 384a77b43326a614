// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Shared memory that somebody could find after a crash.

#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <system_error>

namespace chainmail::test {

/// Files of ours in /dev/shm, of all processes of the machine. Segments and buffers have no name
/// there, so it is none; folders there are those of jobs that run beside the test.
inline std::size_t files_in_dev_shm() {
  namespace fs = std::filesystem;
  std::size_t count = 0;
  std::error_code error;
  for (auto entry = fs::directory_iterator("/dev/shm", error); entry != fs::directory_iterator();
       entry.increment(error)) {
    const bool is_ours = entry->path().filename().string().find("chainmail") != std::string::npos;
    if (is_ours && entry->is_regular_file(error)) ++count;
  }
  return count;
}

}  // namespace chainmail::test
