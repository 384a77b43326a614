// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Keys from secrets: HKDF with SHA-256 (RFC 5869), and a key that is wiped when it goes.
//
// Thread-safe.

#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/crypto/hmac.h"

namespace chainmail::internal {

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
  void wipe() noexcept;

  std::array<std::byte, kBytes> bytes_{};
};

/// HKDF-Extract: a key out of a secret of any length and a salt that need not be secret.
[[nodiscard]] SecretKey hkdf_extract(std::span<const std::byte> salt,
                                     std::span<const std::byte> secret);
/// HKDF-Expand: fills `out`, at most 255 * 32 bytes; `info` says what the bytes are for.
void hkdf_expand(const SecretKey& key, std::span<const std::byte> info, std::span<std::byte> out);

}  // namespace chainmail::internal
