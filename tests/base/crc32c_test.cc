// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace chainmail::internal {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST(Crc32cTest, KnownValues) {
  // RFC 3720, appendix B.4, and the usual check value.
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0})), 0x8a9136aaU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xff})), 0x62a8ab43U);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(Crc32cTest, FastAndPortableAgreeAtAllLengthsAndAlignments) {
  std::mt19937 random(1);
  std::vector<std::byte> data(20'000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  const std::span all(data);
  for (std::size_t length = 0; length < 300; ++length) {
    EXPECT_EQ(crc32c(all.subspan(length % 8, length)),
              crc32c_portable(all.subspan(length % 8, length)));
  }
  for (const std::size_t length : {4079U, 4080U, 4081U, 8160U, 12345U, 19'993U}) {
    EXPECT_EQ(crc32c(all.subspan(7, length)), crc32c_portable(all.subspan(7, length))) << length;
  }
}

TEST(Crc32cTest, GoesOnWhereItStopped) {
  EXPECT_EQ(crc32c(bytes_of("456789"), crc32c(bytes_of("123"))), 0xe3069283U);
  EXPECT_EQ(crc32c_portable(bytes_of("456789"), crc32c(bytes_of("123"))), 0xe3069283U);
}

}  // namespace
}  // namespace chainmail::internal
