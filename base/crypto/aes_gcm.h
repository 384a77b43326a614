// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// AES-256-GCM (NIST SP 800-38D) over OpenSSL: one key, one direction, any number of texts.
//
// Not thread-safe. Allocates when it is made and never again. The caller sees to it that no IV is
// used twice under a key.

#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

struct evp_cipher_ctx_st;

namespace chainmail::internal {

class AesGcm {
 public:
  static constexpr std::size_t kKeyBytes = 32;
  static constexpr std::size_t kIvBytes = 12;
  static constexpr std::size_t kTagBytes = 16;
  using Iv = std::array<std::byte, kIvBytes>;
  enum class Role { kSeal, kOpen };

  /// Throws SystemError.
  explicit AesGcm(Role role);

  void set_key(std::span<const std::byte, kKeyBytes> key);

  /// Role kSeal: writes as many bytes as `text` has to `out`, which may be where `text` is, and
  /// kTagBytes to `tag`. `extra` is authenticated and not encrypted. Each is shorter than 2 GiB.
  /// Throws SystemError.
  void seal(const Iv& iv, std::span<const std::byte> extra, std::span<const std::byte> text,
            std::byte* out, std::byte* tag);
  /// Role kOpen: the reverse. False when anything is not as it was sealed: `out` then holds what
  /// nobody may use. Throws SystemError.
  [[nodiscard]] bool open(const Iv& iv, std::span<const std::byte> extra,
                          std::span<const std::byte> text, std::byte* out, const std::byte* tag);

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const noexcept;
  };
  void feed(const Iv& iv, std::span<const std::byte> extra, std::span<const std::byte> text,
            std::byte* out);

  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
  Role role_;
};

}  // namespace chainmail::internal
