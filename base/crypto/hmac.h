// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// HMAC-SHA256 and random bytes, for proofs that a peer belongs to the job. Thread-safe.

#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace chainmail::internal {

using Digest = std::array<std::byte, 32>;
using Nonce = std::array<std::byte, 32>;

/// HMAC-SHA256 of `message` under `key`. Throws SystemError when the library fails.
[[nodiscard]] Digest hmac_sha256(std::string_view key, std::span<const std::byte> message);

/// Takes the same time wherever the first difference is.
[[nodiscard]] bool equal_in_constant_time(const Digest& a, const Digest& b) noexcept;

/// 32 bytes from the kernel. Throws SystemError.
[[nodiscard]] Nonce random_nonce();

}  // namespace chainmail::internal
