// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/tcp/stream/record_cipher.h"

#include <utility>

namespace chainmail::ops {
namespace {

using internal::AesGcm;
using internal::SecretKey;

}  // namespace

RecordCipher::RecordCipher(AesGcm::Role role, Encryption mode, SecretKey key,
                           std::uint64_t records_per_key)
    : cipher_(role),
      mode_(mode),
      key_(std::move(key)),
      records_per_key_(records_per_key),
      left_(records_per_key) {
  use_key();
}

void RecordCipher::use_key() {
  SecretKey key;
  internal::hkdf_expand(key_, "key", key.bytes());
  cipher_.set_key(key.bytes());
  internal::hkdf_expand(key_, "iv", iv_);
}

// Whoever learns a key later cannot read what was sent under those before it.
AesGcm::Iv RecordCipher::next_iv() {
  if (left_ == 0) {
    SecretKey next;
    internal::hkdf_expand(key_, "next", next.bytes());
    key_ = std::move(next);
    use_key();
    left_ = records_per_key_;
  }
  --left_;
  AesGcm::Iv iv = iv_;
  for (unsigned i = 0; i < 8; ++i) {
    iv[iv.size() - 1 - i] ^= static_cast<std::byte>((count_ >> (8 * i)) & 0xff);
  }
  ++count_;
  return iv;
}

void RecordCipher::seal(std::span<const std::byte> text, std::byte* out, std::byte* tag) {
  const AesGcm::Iv iv = next_iv();
  if (mode_ == Encryption::kEncrypt) {
    cipher_.seal(iv, {}, text, out, tag);
  } else {
    cipher_.seal(iv, text, {}, nullptr, tag);
  }
}

bool RecordCipher::open(std::span<std::byte> text, const std::byte* tag) {
  const AesGcm::Iv iv = next_iv();
  return mode_ == Encryption::kEncrypt ? cipher_.open(iv, {}, text, text.data(), tag)
                                       : cipher_.open(iv, text, {}, nullptr, tag);
}

}  // namespace chainmail::ops
