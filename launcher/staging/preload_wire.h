// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files that the controller copies to a host before ranks start there: first the list of them, then
// their bytes, one file after the other, in pieces. The agent says when a piece is on its disk, so
// that only a few are on their way.
//
// Pure functions over bytes: every length is checked before use.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chainmail::launch {

/// The first byte of a body of kPreload.
enum class PreloadOp : std::uint8_t {
  // controller -> agent
  kList = 1,  ///< the files that will come
  kPiece,     ///< bytes of the file that is not complete yet; at most kPreloadPieceBytes
  // agent -> controller
  kTaken,   ///< one piece has been written
  kStored,  ///< all files are complete; their folder
  kFailed,  ///< they cannot be stored; why
};

inline constexpr std::size_t kPreloadPieceBytes = std::size_t{256} << 10;
inline constexpr std::size_t kMostPreloadedFiles = 1024;

struct PreloadedFile {
  std::string name;  ///< without a folder
  std::uint64_t bytes = 0;
  std::uint32_t mode = 0;      ///< permissions
  std::uint64_t checksum = 0;  ///< hash64() of the whole file

  friend bool operator==(const PreloadedFile&, const PreloadedFile&) = default;
  static void fields(auto& archive, auto& m) { archive(m.name, m.bytes, m.mode, m.checksum); }
};

/// Body of kList.
[[nodiscard]] std::string encode_preload_list(const std::vector<PreloadedFile>& files);
/// Without the first byte. Throws SystemError(EPROTO), also for names that are no file names, that
/// come twice, and for sizes whose sum cannot be.
[[nodiscard]] std::vector<PreloadedFile> decode_preload_list(std::string_view body);

/// A body with one text.
[[nodiscard]] std::string encode_preload(PreloadOp op, std::string_view text = {});

/// "12.3 MiB", for people.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

}  // namespace chainmail::launch
