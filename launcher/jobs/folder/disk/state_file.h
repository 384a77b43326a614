// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The files of a job's folder: replaced whole, read while somebody replaces them, and room kept for
// the last word of a job whose disk is full. Thread-safe for different folders.

#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace chainmail::launch {

inline constexpr char kStateFile[] = "state.json";
/// The most that replace_from_reserve() can write.
inline constexpr std::size_t kReserveBytes = std::size_t{64} << 10;

/// Puts `text` (0600) in the place of a file of the open folder: written beside it, fsync, rename,
/// fsync of the folder. Why it could not be done, or nothing; then the old one is as it was.
[[nodiscard]] std::string replace_file_of(int folder, const std::string& name,
                                          std::string_view text);

/// Room for a last text of kReserveBytes that replace_from_reserve() can write where nothing else
/// can be written any more. Without it that fails as well.
void make_reserve(int folder) noexcept;
void remove_reserve(int folder) noexcept;
/// As replace_file_of(), once, in the room that was kept.
[[nodiscard]] std::string replace_from_reserve(int folder, const std::string& name,
                                               std::string_view text);

/// As a last resort, for a shorter text, which takes no room: in the place of the file's own bytes,
/// filled up with spaces. A reader may see half of it for a moment.
[[nodiscard]] std::string overwrite_file_of(int folder, const std::string& name,
                                            std::string_view text);

/// A file of at most 16 MiB, whole, however often it is replaced meanwhile. Throws SystemError with
/// its path.
[[nodiscard]] std::string read_whole_file(const std::string& path);

}  // namespace chainmail::launch
