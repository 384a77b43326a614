// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/crypto/hkdf.h"

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

std::string expand(const SecretKey& key, const std::vector<std::byte>& info, std::size_t bytes) {
  std::vector<std::byte> out(bytes);
  hkdf_expand(key, info, out);
  return test::to_hex(out);
}

// RFC 5869, appendix A.1 to A.3.
TEST(HkdfTest, Basic) {
  const std::vector<std::byte> secret(22, std::byte{0x0b});
  const SecretKey key = hkdf_extract(range(0x00, 0x0c), secret);
  EXPECT_EQ(test::to_hex(key.bytes()),
            "077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
  EXPECT_EQ(expand(key, range(0xf0, 0xf9), 42),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865");
}

TEST(HkdfTest, LongInputs) {
  const SecretKey key = hkdf_extract(range(0x60, 0xaf), range(0x00, 0x4f));
  EXPECT_EQ(
      expand(key, range(0xb0, 0xff), 82),
      "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c6"
      "5e590e09da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87");
}

TEST(HkdfTest, NeitherSaltNorInfo) {
  const std::vector<std::byte> secret(22, std::byte{0x0b});
  const SecretKey key = hkdf_extract({}, secret);
  EXPECT_EQ(test::to_hex(key.bytes()),
            "19ef24a32c717b167f33a91d6f648bdf96596776afdb6377ac434c1c293ccb04");
  EXPECT_EQ(expand(key, {}, 42),
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8");
}

TEST(HkdfTest, RefusesMoreThanThereIs) {
  const SecretKey key = hkdf_extract({}, {});
  std::vector<std::byte> out(255 * 32 + 1);
  EXPECT_THROW(hkdf_expand(key, {}, out), InvalidArgument);
  out.pop_back();
  EXPECT_NO_THROW(hkdf_expand(key, {}, out));
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
