// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/crypto/hmac.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/base/hex.h"

namespace chainmail::internal {
namespace {

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

}  // namespace
}  // namespace chainmail::internal
