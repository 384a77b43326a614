// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/hidden_values.h"

#include <gtest/gtest.h>

#include "launcher/output/line_splitter.h"

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

std::string quoted_lines(const std::string& printed) {
  LastLines lines;
  lines.append(printed);
  return lines.quoted();
}

TEST(HiddenValues, WithLineEndsAndControlsOfOtherSystems) {
  const std::vector<HiddenValue> hidden = {{"KEY", "-----BEGIN\r\nabcdefghijkl\r\n"},
                                           {"BELL", "secret\x07-0dd5eed"}};
  EXPECT_EQ(
      without_values(quoted_lines("-----BEGIN\r\nabcdefghijkl\r\nsecret\x07-0dd5eed\n"), hidden),
      "\n  | [KEY]\n  | [KEY]\n  | [BELL]");
}

TEST(HiddenValues, AlsoWhereALineWasCutInOne) {
  std::string value;
  for (int i = 0; i < 1000; ++i) value += "part" + std::to_string(i);
  const std::vector<HiddenValue> hidden = {{"LONG", value}, {"TOKEN", "to-to-token-5ab1e1"}};
  EXPECT_EQ(without_values(quoted_lines("x=" + value + " y\n"), hidden), "\n  | x=[LONG] ...");
  const std::string line(LastLines::kMaxLineBytes - 11, '.');
  EXPECT_EQ(without_values(quoted_lines(line + "to-to-to-token-5ab1e1\n"), hidden),
            "\n  | " + line + "to-[TOKEN] ...");
  EXPECT_EQ(without_values("token ... to-to ...", hidden), "token ... [TOKEN] ...");
  // In time that grows with both lengths only.
  const std::vector<HiddenValue> same = {{"SAME", std::string(65536, 'a') + 'b'}};
  std::string printed(5000, 'a');
  printed += '\n';
  std::string text;
  for (int i = 0; i < 20; ++i) text += quoted_lines(printed);
  EXPECT_EQ(without_values(text, same).find("aaaa"), std::string::npos);
}

}  // namespace
}  // namespace chainmail::launch
