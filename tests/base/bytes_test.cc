// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/bytes.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace chainmail::internal {
namespace {

TEST(Bytes, HexHasTwoLowerCaseDigitsPerByte) {
  EXPECT_EQ(to_hex(""), "");
  EXPECT_EQ(to_hex(std::string_view("\x00\x01\x7f\x80\xff", 5)), "00017f80ff");
}

TEST(Bytes, RandomBytesAreAsManyAsAskedForAndNeverTheSame) {
  EXPECT_EQ(random_bytes(0), "");
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) {
    const std::string bytes = random_bytes(16);
    EXPECT_EQ(bytes.size(), 16U);
    seen.insert(bytes);
  }
  EXPECT_EQ(seen.size(), 100U);
}

// Each byte of 256 is hit: what stays zero in all of 20 fills was not written.
TEST(Bytes, AFillReachesTheLastByte) {
  std::vector<bool> is_written(256, false);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::byte> bytes(256);
    fill_with_random(bytes);
    for (std::size_t at = 0; at < bytes.size(); ++at) {
      if (bytes[at] != std::byte{0}) is_written[at] = true;
    }
  }
  for (std::size_t at = 0; at < is_written.size(); ++at) EXPECT_TRUE(is_written[at]) << at;
}

}  // namespace
}  // namespace chainmail::internal
