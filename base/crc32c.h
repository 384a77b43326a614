// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// CRC-32C (Castagnoli), the checksum of payloads on TCP. Thread-safe (pure functions).

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace chainmail::internal {

/// The checksum of `bytes`, or of what came before with checksum `previous` followed by `bytes`.
/// Uses the processor's instruction where it has one.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t previous = 0) noexcept;

/// The same by table, on any processor; what the fast path is tested against.
[[nodiscard]] std::uint32_t crc32c_portable(std::span<const std::byte> bytes,
                                            std::uint32_t previous = 0) noexcept;

}  // namespace chainmail::internal
