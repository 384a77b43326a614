// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// CRC-32C (Castagnoli), the checksum of payloads on TCP. Thread-safe (pure functions).

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace chainmail::internal {

/// The checksum of `bytes`, or of what came before with checksum `previous` followed by `bytes`.
/// In the fastest way that the processor has.
[[nodiscard]] std::uint32_t crc32c(std::span<const std::byte> bytes,
                                   std::uint32_t previous = 0) noexcept;

/// The ways to compute it, slowest first.
enum class Crc32cMethod {
  kTable,        ///< any processor; what the others are tested against
  kInstruction,  ///< crc32 of SSE 4.2: 8 bytes per cycle
  kFolding,      ///< carry-less products of 64 bytes (AVX-512, VPCLMULQDQ): several times that
};
[[nodiscard]] bool is_supported(Crc32cMethod method) noexcept;
/// `method` must be supported.
[[nodiscard]] std::uint32_t crc32c_by(Crc32cMethod method, std::span<const std::byte> bytes,
                                      std::uint32_t previous = 0) noexcept;

}  // namespace chainmail::internal
