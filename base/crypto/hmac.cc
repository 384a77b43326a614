// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/crypto/hmac.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cerrno>

#include "base/bytes.h"
#include "base/error.h"

namespace chainmail::internal {

Digest hmac_sha256(std::string_view key, std::span<const std::byte> message) {
  Digest digest{};
  unsigned int length = 0;
  // A null key pointer would mean "the key of the last call" to OpenSSL.
  const char* key_data = key.empty() ? "" : key.data();
  const unsigned char* result =
      HMAC(EVP_sha256(), key_data, static_cast<int>(key.size()),
           reinterpret_cast<const unsigned char*>(message.data()), message.size(),
           reinterpret_cast<unsigned char*>(digest.data()), &length);
  if (result == nullptr || length != digest.size()) {
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

}  // namespace chainmail::internal
