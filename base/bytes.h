// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Bytes from the kernel's generator, and bytes as text.
//
// Any thread.

#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace chainmail::internal {

/// Unguessable, for keys, tokens and names that nobody shall use twice. At most 256 bytes, which
/// the kernel gives whole once its pool is ready. Throws SystemError.
void fill_with_random(std::span<std::byte> bytes);

/// `count` of them, at most 256. Throws SystemError.
[[nodiscard]] std::string random_bytes(std::size_t count);

/// Two lower-case digits per byte.
[[nodiscard]] std::string to_hex(std::string_view bytes);

}  // namespace chainmail::internal
