// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The IDX format: 4 magic bytes (0, 0, element type, number of dimensions), the dimensions as
// big-endian 32-bit numbers, then the elements. http://yann.lecun.com/exdb/mnist/
//
// Pure functions over bytes: every length is checked before use.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace chainmail::internal {

struct IdxHead {
  std::vector<std::int64_t> dims;
  std::size_t data_begin = 0;  ///< offset of the first element
};

/// Checks that `bytes` is exactly one IDX file of unsigned bytes. Throws InvalidArgument naming
/// `file` and the offset of what is wrong.
[[nodiscard]] IdxHead parse_idx(std::span<const std::byte> bytes, const std::string& file);

/// True when the bytes begin as a gzip file.
[[nodiscard]] bool is_gzip(std::span<const std::byte> bytes) noexcept;

/// Unpacks a gzip file (all its members). Throws InvalidArgument naming `file` and the offset in
/// the packed data when it is damaged or ends early, or unpacks to more than `limit` bytes.
[[nodiscard]] std::vector<std::byte> gunzip(std::span<const std::byte> bytes,
                                            const std::string& file, std::size_t limit);

}  // namespace chainmail::internal
