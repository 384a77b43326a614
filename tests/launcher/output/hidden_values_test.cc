// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/hidden_values.h"

#include <gtest/gtest.h>

namespace chainmail::launch {
namespace {

TEST(HiddenValues, AreReplacedWhereverTheyStand) {
  const std::vector<HiddenValue> hidden = {{"TOKEN", "token-5ab1e1"}, {"SHORT", "1234567"}};
  EXPECT_EQ(without_values("token-5ab1e1token-5ab1e1", hidden), "[TOKEN][TOKEN]");
  EXPECT_EQ(without_values("rank 1234567 of token-5ab1e", hidden), "rank 1234567 of token-5ab1e");
  EXPECT_EQ(without_values("as before", {}), "as before");
}

TEST(HiddenValues, TheLongerOneIsReplacedFirst) {
  const std::vector<HiddenValue> hidden = {{"A", "password"}, {"B", "password-2"}};
  EXPECT_EQ(without_values("password-2 password", hidden), "[B] [A]");
}

TEST(HiddenValues, LineByLineAndInJson) {
  const std::vector<HiddenValue> hidden = {{"KEY", "-----BEGIN\nabcdefghijkl\nxy"},
                                           {"QUOTED", "a\"b\\c\td.ef"}};
  EXPECT_EQ(without_values("  | abcdefghijkl\n  | xy", hidden), "  | [KEY]\n  | xy");
  EXPECT_EQ(without_values(R"({"cause":"a\"b\\c\td.ef"})", hidden), R"({"cause":"[QUOTED]"})");
}

}  // namespace
}  // namespace chainmail::launch
