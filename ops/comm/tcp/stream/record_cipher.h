// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Records as in TLS 1.3 (RFC 8446, 5.2 and 5.3): the n-th record of one direction of one connection
// is sealed by AES-256-GCM under an IV that n is part of. Nothing of n travels: a record that was
// left out, repeated, moved or taken from elsewhere does not open.
//
// Not thread-safe. Allocates when it is made and when the key changes.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/crypto/aes_gcm.h"
#include "base/crypto/keys.h"
#include "ops/types.h"

namespace chainmail::ops {

/// The longest record: long enough to cost little by itself, short enough that the next one is
/// sealed while the last is on the wire.
inline constexpr std::size_t kRecordBytes = std::size_t{64} << 10;
/// 2^32 blocks under one key: with them the odds of telling AES from a random permutation are 2^-65
/// (NIST SP 800-38D asks for fewer than 2^32 records, TLS for fewer than 2^34.5 blocks).
inline constexpr std::uint64_t kRecordsPerKey = std::uint64_t{1} << 20;

class RecordCipher {
 public:
  static constexpr std::size_t kTagBytes = internal::AesGcm::kTagBytes;

  /// `mode` is not kOff. Every `records_per_key` records both ends go on with the next key.
  RecordCipher(internal::AesGcm::Role role, Encryption mode, internal::SecretKey key,
               std::uint64_t records_per_key = kRecordsPerKey);

  /// The next record. kEncrypt writes as many bytes as `text` has to `out`; kAuthenticate does not:
  /// `text` travels as it is.
  void seal(std::span<const std::byte> text, std::byte* out, std::byte* tag);
  /// The next record, in place. False when it is not the one that the peer has sealed at this
  /// point: nothing of it, and nothing that follows, may be used.
  [[nodiscard]] bool open(std::span<std::byte> text, const std::byte* tag);

  std::uint64_t record_count() const noexcept { return count_; }

 private:
  internal::AesGcm::Iv next_iv();
  void use_key();

  internal::AesGcm cipher_;
  Encryption mode_;
  internal::SecretKey key_;  ///< what the cipher's key, its IV and the next key_ are made of
  internal::AesGcm::Iv iv_{};
  std::uint64_t count_ = 0;
  std::uint64_t records_per_key_;
  std::uint64_t left_;  ///< records under this key
};

}  // namespace chainmail::ops
