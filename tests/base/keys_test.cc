// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/crypto/keys.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/base/hex.h"

namespace chainmail::internal {
namespace {

std::vector<std::byte> range(int first, int last) {
  std::vector<std::byte> bytes;
  for (int i = first; i <= last; ++i) bytes.push_back(static_cast<std::byte>(i));
  return bytes;
}

std::string expand(const SecretKey& key, const std::vector<std::byte>& info,
                   std::size_t bytes = 32) {
  std::vector<std::byte> out(bytes);
  hkdf_expand(key, {reinterpret_cast<const char*>(info.data()), info.size()}, out);
  return test::to_hex(out);
}

Digest hmac(std::string_view key, std::string_view message) {
  return hmac_sha256(key, std::as_bytes(std::span(message)));
}

TEST(HmacTest, KnownValues) {
  // RFC 4231, cases 1 and 2; the value for nothing at all is well known, too.
  EXPECT_EQ(test::to_hex(hmac(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(test::to_hex(hmac("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(test::to_hex(hmac("", "")),
            "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad");
}

TEST(HmacTest, ComparesWholeDigests) {
  const Digest digest = hmac("key", "message");
  EXPECT_TRUE(equal_in_constant_time(digest, hmac("key", "message")));
  for (std::size_t i = 0; i < digest.size(); ++i) {
    Digest other = digest;
    other[i] ^= std::byte{1};
    EXPECT_FALSE(equal_in_constant_time(digest, other)) << "byte " << i;
  }
}

TEST(HmacTest, NoncesDiffer) { EXPECT_NE(random_nonce(), random_nonce()); }

// RFC 5869, appendix A.1 to A.3: the first of the bytes that it lists.
TEST(HkdfTest, Basic) {
  const std::vector<std::byte> secret(22, std::byte{0x0b});
  const SecretKey key = hkdf_extract(range(0x00, 0x0c), secret);
  EXPECT_EQ(test::to_hex(key.bytes()),
            "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
  EXPECT_EQ(expand(key, range(0xf0, 0xf9)),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
  EXPECT_EQ(expand(key, range(0xf0, 0xf9), 12), "3cb25f25faacd57a90434f64");
}

TEST(HkdfTest, LongInputs) {
  const SecretKey key = hkdf_extract(range(0x60, 0xaf), range(0x00, 0x4f));
  EXPECT_EQ(expand(key, range(0xb0, 0xff)),
            "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c");
}

TEST(HkdfTest, NeitherSaltNorInfo) {
  const std::vector<std::byte> secret(22, std::byte{0x0b});
  const SecretKey key = hkdf_extract({}, secret);
  EXPECT_EQ(test::to_hex(key.bytes()),
            "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04");
  EXPECT_EQ(expand(key, {}), "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
}

TEST(HkdfTest, RefusesMoreThanThereIs) {
  const SecretKey key = hkdf_extract({}, {});
  EXPECT_THROW(expand(key, {}, 33), InvalidArgument);
}

TEST(SecretKeyTest, AMovedFromKeyIsZeros) {
  const std::string zeros(64, '0');
  SecretKey first = hkdf_extract({}, {});
  const std::string value = test::to_hex(first.bytes());
  SecretKey second = std::move(first);
  EXPECT_EQ(test::to_hex(first.bytes()), zeros);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(test::to_hex(second.bytes()), value);
  SecretKey third;
  third = std::move(second);
  EXPECT_EQ(test::to_hex(second.bytes()), zeros);  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(test::to_hex(third.bytes()), value);
}

// Where a key stood, nothing is left of it.
TEST(SecretKeyTest, IsWipedWhenItGoes) {
  alignas(SecretKey) std::byte place[sizeof(SecretKey)];
  auto* key = new (place) SecretKey(hkdf_extract({}, {}));
  ASSERT_NE(test::to_hex(place), std::string(64, '0'));
  key->~SecretKey();
  EXPECT_EQ(test::to_hex(place), std::string(64, '0'));
}

}  // namespace
}  // namespace chainmail::internal
