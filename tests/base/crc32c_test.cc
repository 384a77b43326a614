// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/net/crc32c.h"

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

class Crc32cMethodTest : public ::testing::TestWithParam<Crc32cMethod> {
 protected:
  void SetUp() override {
    if (!is_supported(GetParam())) GTEST_SKIP() << "this processor has no instruction for it";
  }
};

TEST_P(Crc32cMethodTest, AgreesWithTheTableAtAllLengthsAndAlignments) {
  std::mt19937 random(1);
  std::vector<std::byte> data(20'000);
  for (std::byte& byte : data) byte = static_cast<std::byte>(random());
  const std::span all(data);
  const auto expect_equal = [&](std::size_t begin, std::size_t length, std::uint32_t previous) {
    const auto part = all.subspan(begin, length);
    EXPECT_EQ(crc32c_by(GetParam(), part, previous),
              crc32c_by(Crc32cMethod::kTable, part, previous))
        << length << " bytes from " << begin;
  };
  for (std::size_t length = 0; length < 1200; ++length) {
    expect_equal(length % 67, length, 0);
    expect_equal(length % 67, length, 0xdeadbeef);
  }
  for (const std::size_t length : {4079U, 4080U, 4081U, 8160U, 12345U, 19'993U}) {
    expect_equal(7, length, 1);
  }
}

TEST_P(Crc32cMethodTest, GoesOnWhereItStopped) {
  EXPECT_EQ(crc32c_by(GetParam(), bytes_of("456789"), crc32c(bytes_of("123"))), 0xe3069283U);
}

INSTANTIATE_TEST_SUITE_P(Methods, Crc32cMethodTest,
                         ::testing::Values(Crc32cMethod::kTable, Crc32cMethod::kInstruction,
                                           Crc32cMethod::kFolding));

}  // namespace
}  // namespace chainmail::internal
