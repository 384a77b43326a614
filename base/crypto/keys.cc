// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/crypto/keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace chainmail::internal {

Digest hmac_sha256(std::string_view key, std::span<const std::byte> message) {
  Digest digest{};
  // A null key pointer would mean "the key of the last call" to OpenSSL.
  if (HMAC(EVP_sha256(), key.empty() ? "" : key.data(), static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(digest.data()), nullptr) == nullptr) {
    throw SystemError("HMAC-SHA256 of OpenSSL failed", EIO);
  }
  return digest;
}

bool equal_in_constant_time(const Digest& a, const Digest& b) noexcept {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

Nonce random_nonce() {
  Nonce nonce{};
  fill_with_random(nonce);
  return nonce;
}

SecretKey::SecretKey(SecretKey&& other) noexcept { *this = std::move(other); }

SecretKey& SecretKey::operator=(SecretKey&& other) noexcept {
  if (this == &other) return *this;
  bytes_ = other.bytes_;
  OPENSSL_cleanse(other.bytes_.data(), kBytes);
  return *this;
}

SecretKey::~SecretKey() { OPENSSL_cleanse(bytes_.data(), kBytes); }

SecretKey hkdf_extract(std::span<const std::byte> salt, std::span<const std::byte> secret) {
  Digest digest = hmac_sha256({reinterpret_cast<const char*>(salt.data()), salt.size()}, secret);
  SecretKey key;
  std::copy(digest.begin(), digest.end(), key.bytes().begin());
  OPENSSL_cleanse(digest.data(), digest.size());
  return key;
}

// HKDF goes on, block by block, for more than the 32 bytes that anything here needs.
void hkdf_expand(const SecretKey& key, std::string_view info, std::span<std::byte> out) {
  if (out.size() > sizeof(Digest)) throw InvalidArgument("more than 32 bytes of a key");
  const std::string text = std::string(info) + '\1';
  Digest block = hmac_sha256(key.view(), std::as_bytes(std::span(text)));
  std::copy_n(block.begin(), out.size(), out.begin());
  OPENSSL_cleanse(block.data(), block.size());
}

}  // namespace chainmail::internal
