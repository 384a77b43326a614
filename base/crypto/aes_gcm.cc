// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/crypto/aes_gcm.h"

#include <openssl/evp.h>

#include <cerrno>

#include "base/error.h"

namespace chainmail::internal {
namespace {

const unsigned char* bytes(const std::byte* data) noexcept {
  return reinterpret_cast<const unsigned char*>(data);
}
unsigned char* bytes(std::byte* data) noexcept { return reinterpret_cast<unsigned char*>(data); }

void check(int status) {
  if (status != 1) throw SystemError("AES-256-GCM of OpenSSL failed", EIO);
}

}  // namespace

// Wipes the key schedule, too.
void AesGcm::Free::operator()(evp_cipher_ctx_st* context) const noexcept {
  EVP_CIPHER_CTX_free(context);
}

AesGcm::AesGcm(Role role) : context_(EVP_CIPHER_CTX_new()), role_(role) {
  check(context_ != nullptr ? 1 : 0);
  // The default length of an IV is kIvBytes.
  check(EVP_CipherInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, nullptr, nullptr,
                          role == Role::kSeal ? 1 : 0));
}

void AesGcm::set_key(std::span<const std::byte, kKeyBytes> key) {
  check(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, bytes(key.data()), nullptr, -1));
}

void AesGcm::feed(const Iv& iv, std::span<const std::byte> extra, std::span<const std::byte> text,
                  std::byte* out) {
  int written = 0;
  check(EVP_CipherInit_ex(context_.get(), nullptr, nullptr, nullptr, bytes(iv.data()), -1));
  if (!extra.empty()) {
    check(EVP_CipherUpdate(context_.get(), nullptr, &written, bytes(extra.data()),
                           static_cast<int>(extra.size())));
  }
  if (!text.empty()) {
    check(EVP_CipherUpdate(context_.get(), bytes(out), &written, bytes(text.data()),
                           static_cast<int>(text.size())));
  }
}

void AesGcm::seal(const Iv& iv, std::span<const std::byte> extra, std::span<const std::byte> text,
                  std::byte* out, std::byte* tag) {
  if (role_ != Role::kSeal) check(0);
  feed(iv, extra, text, out);
  unsigned char rest = 0;  // GCM leaves none
  int written = 0;
  check(EVP_CipherFinal_ex(context_.get(), &rest, &written));
  check(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_GET_TAG, kTagBytes, tag));
}

bool AesGcm::open(const Iv& iv, std::span<const std::byte> extra, std::span<const std::byte> text,
                  std::byte* out, const std::byte* tag) {
  if (role_ != Role::kOpen) check(0);
  feed(iv, extra, text, out);
  // It is read only; the call has no const form.
  check(EVP_CIPHER_CTX_ctrl(context_.get(), EVP_CTRL_AEAD_SET_TAG, kTagBytes,
                            const_cast<std::byte*>(tag)));
  unsigned char rest = 0;
  int written = 0;
  return EVP_CipherFinal_ex(context_.get(), &rest, &written) == 1;
}

}  // namespace chainmail::internal
