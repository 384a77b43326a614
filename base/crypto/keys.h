// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Proofs that a peer knows a secret (HMAC-SHA256), keys made of secrets (HKDF-SHA256, RFC 5869),
// and a key that is wiped when it goes. All of OpenSSL's libcrypto.
//
// Thread-safe.

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

/// 32 secret bytes with one owner; a moved-from key is zeros.
class SecretKey {
 public:
  static constexpr std::size_t kBytes = 32;
  SecretKey() = default;
  SecretKey(SecretKey&& other) noexcept;
  SecretKey& operator=(SecretKey&& other) noexcept;
  ~SecretKey();

  std::span<std::byte, kBytes> bytes() noexcept { return bytes_; }
  std::span<const std::byte, kBytes> bytes() const noexcept { return bytes_; }
  std::string_view view() const noexcept {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }

 private:
  std::array<std::byte, kBytes> bytes_{};
};

/// HKDF-Extract: a key out of a secret of any length and a salt that need not be secret.
[[nodiscard]] SecretKey hkdf_extract(std::span<const std::byte> salt,
                                     std::span<const std::byte> secret);
/// HKDF-Expand: fills `out`, at most 32 bytes; `info` says what the bytes are for.
void hkdf_expand(const SecretKey& key, std::string_view info, std::span<std::byte> out);

}  // namespace chainmail::internal
