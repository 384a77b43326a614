// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/crypto/aes_gcm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/base/hex.h"

namespace chainmail::internal {
namespace {

using Bytes = std::vector<std::byte>;

struct Vector {
  const char* key;
  const char* iv;
  const char* extra;
  const char* text;
  const char* sealed;
  const char* tag;
};

// Cases 13, 14 and 16 of McGrew and Viega, "The Galois/Counter Mode of Operation", and the first of
// NIST's gcmEncryptExtIV256 with extra data alone (GMAC).
constexpr Vector kVectors[] = {
    {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000",
     "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
    {"0000000000000000000000000000000000000000000000000000000000000000", "000000000000000000000000",
     "", "00000000000000000000000000000000", "cea7403d4d606b6e074ec5d3baf39d18",
     "d0d1c8a799996bf0265b98b5d48ab919"},
    {"feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", "cafebabefacedbaddecaf888",
     "feedfacedeadbeeffeedfacedeadbeefabaddad2",
     "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6"
     "b525b16aedf5aa0de657ba637b39",
     "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b105682"
     "8838c5f61e6393ba7a0abcc9f662",
     "76fc6ece0f4e1768cddf8853bb2d551b"},
    {"78dc4e0aaf52d935c3c01eea57428f00ca1fd475f5da86a49c8dd73d68c8e223", "d79cf22d504cc793c3fb6c8a",
     "b96baa8c1c75a671bfb2d08d06be5f36", "", "", "3e5d486aa2e30b22e040b85723a06e76"},
};

AesGcm keyed(AesGcm::Role role, const Vector& vector) {
  AesGcm cipher(role);
  const Bytes key = test::from_hex(vector.key);
  cipher.set_key(std::span<const std::byte, AesGcm::kKeyBytes>(key));
  return cipher;
}

AesGcm::Iv iv_of(const Vector& vector) {
  AesGcm::Iv iv{};
  const Bytes bytes = test::from_hex(vector.iv);
  std::copy(bytes.begin(), bytes.end(), iv.begin());
  return iv;
}

TEST(AesGcmTest, PublishedVectors) {
  for (const Vector& vector : kVectors) {
    const Bytes extra = test::from_hex(vector.extra);
    const Bytes text = test::from_hex(vector.text);
    Bytes out(text.size());
    Bytes tag(AesGcm::kTagBytes);
    keyed(AesGcm::Role::kSeal, vector).seal(iv_of(vector), extra, text, out.data(), tag.data());
    EXPECT_EQ(test::to_hex(out), vector.sealed);
    EXPECT_EQ(test::to_hex(tag), vector.tag);
    Bytes& in_place = out;
    EXPECT_TRUE(keyed(AesGcm::Role::kOpen, vector)
                    .open(iv_of(vector), extra, in_place, in_place.data(), tag.data()));
    EXPECT_EQ(test::to_hex(in_place), vector.text);
  }
}

TEST(AesGcmTest, NothingButWhatWasSealedOpens) {
  const Vector& vector = kVectors[2];
  const Bytes extra = test::from_hex(vector.extra);
  const Bytes sealed = test::from_hex(vector.sealed);
  const Bytes tag = test::from_hex(vector.tag);
  AesGcm cipher = keyed(AesGcm::Role::kOpen, vector);
  const auto opens = [&](const Bytes& with_extra, const Bytes& text, const Bytes& with_tag,
                         const AesGcm::Iv& iv) {
    Bytes out(text.size());
    return cipher.open(iv, with_extra, text, out.data(), with_tag.data());
  };
  EXPECT_TRUE(opens(extra, sealed, tag, iv_of(vector)));
  const auto flipped = [](Bytes bytes, std::size_t bit) {
    bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    return bytes;
  };
  for (std::size_t bit = 0; bit < 8 * sealed.size(); ++bit) {
    EXPECT_FALSE(opens(extra, flipped(sealed, bit), tag, iv_of(vector))) << bit;
  }
  for (std::size_t bit = 0; bit < 8 * tag.size(); ++bit) {
    EXPECT_FALSE(opens(extra, sealed, flipped(tag, bit), iv_of(vector))) << bit;
  }
  for (std::size_t bit = 0; bit < 8 * extra.size(); ++bit) {
    EXPECT_FALSE(opens(flipped(extra, bit), sealed, tag, iv_of(vector))) << bit;
  }
  for (std::size_t i = 0; i < AesGcm::kIvBytes; ++i) {
    AesGcm::Iv iv = iv_of(vector);
    iv[i] ^= std::byte{1};
    EXPECT_FALSE(opens(extra, sealed, tag, iv)) << i;
  }
  const Bytes shorter(sealed.begin(), sealed.end() - 1);
  EXPECT_FALSE(opens(extra, shorter, tag, iv_of(vector)));
  // A failure leaves nothing behind that the next text would suffer from.
  EXPECT_TRUE(opens(extra, sealed, tag, iv_of(vector)));
}

TEST(AesGcmTest, EachEndHasOneRole) {
  std::byte tag[AesGcm::kTagBytes] = {};
  AesGcm sealer = keyed(AesGcm::Role::kSeal, kVectors[0]);
  EXPECT_THROW((void)sealer.open({}, {}, {}, nullptr, tag), SystemError);
  AesGcm opener = keyed(AesGcm::Role::kOpen, kVectors[0]);
  EXPECT_THROW(opener.seal({}, {}, {}, nullptr, tag), SystemError);
}

}  // namespace
}  // namespace chainmail::internal
