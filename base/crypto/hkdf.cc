// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/crypto/hkdf.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace chainmail::internal {

SecretKey::SecretKey(SecretKey&& other) noexcept : bytes_(other.bytes_) { other.wipe(); }

SecretKey& SecretKey::operator=(SecretKey&& other) noexcept {
  if (this == &other) return *this;
  bytes_ = other.bytes_;
  other.wipe();
  return *this;
}

SecretKey::~SecretKey() { wipe(); }

void SecretKey::wipe() noexcept { OPENSSL_cleanse(bytes_.data(), bytes_.size()); }

SecretKey hkdf_extract(std::span<const std::byte> salt, std::span<const std::byte> secret) {
  Digest digest = hmac_sha256({reinterpret_cast<const char*>(salt.data()), salt.size()}, secret);
  SecretKey key;
  std::copy(digest.begin(), digest.end(), key.bytes().begin());
  OPENSSL_cleanse(digest.data(), digest.size());
  return key;
}

void hkdf_expand(const SecretKey& key, std::span<const std::byte> info, std::span<std::byte> out) {
  constexpr std::size_t kBlock = sizeof(Digest);
  if (out.size() > 255 * kBlock) throw InvalidArgument("HKDF makes at most 8160 bytes of a key");
  // T(n) = HMAC(key, T(n - 1) | info | n); T(0) is empty.
  std::vector<std::byte> text(kBlock + info.size() + 1);
  std::copy(info.begin(), info.end(), text.begin() + kBlock);
  Digest block{};
  for (std::size_t done = 0, n = 1; done < out.size(); done += kBlock, ++n) {
    text.back() = static_cast<std::byte>(n);
    block = hmac_sha256(key.view(), std::span(text).subspan(n == 1 ? kBlock : 0));
    std::copy_n(block.begin(), std::min(kBlock, out.size() - done),
                out.begin() + static_cast<std::ptrdiff_t>(done));
    std::copy(block.begin(), block.end(), text.begin());
  }
  OPENSSL_cleanse(block.data(), block.size());
  OPENSSL_cleanse(text.data(), text.size());
}

}  // namespace chainmail::internal
