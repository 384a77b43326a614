// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/command/sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace chainmail::bench {
namespace {

using ::testing::ElementsAre;

TEST(SizesTest, UnitsArePowersOf1024) {
  EXPECT_EQ(parse_bytes("4"), 4u);
  EXPECT_EQ(parse_bytes("64K"), 65536u);
  EXPECT_EQ(parse_bytes("25m"), 25u << 20);
  EXPECT_EQ(parse_bytes("1G"), 1u << 30);
  EXPECT_EQ(parse_bytes("7B"), 7u);
}

TEST(SizesTest, WhatIsNoSizeIsRefused) {
  for (const char* text :
       {"", "0", "K", "-4", "4X", "4KB", "1.5M", "2048G", "99999999999999999999"}) {
    EXPECT_THROW((void)parse_bytes(text), InvalidArgument) << text;
  }
  EXPECT_THROW((void)parse_size_list("4,"), InvalidArgument);
  EXPECT_THROW((void)size_range(8, 4, 2), InvalidArgument);
  EXPECT_THROW((void)size_range(4, 8, 1), InvalidArgument);
}

TEST(SizesTest, ListsAndRanges) {
  EXPECT_THAT(parse_size_list("4,25M"), ElementsAre(4u, 25u << 20));
  EXPECT_THAT(size_range(4, 100, 4), ElementsAre(4u, 16u, 64u));
  EXPECT_THAT(size_range(8, 8, 2), ElementsAre(8u));
}

}  // namespace
}  // namespace chainmail::bench
