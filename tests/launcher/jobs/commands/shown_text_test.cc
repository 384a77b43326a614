// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Texts of jobs as people see them.

#include "launcher/jobs/commands/shown_text.h"

#include <gtest/gtest.h>

#include <string>

namespace chainmail::launch {
namespace {

TEST(ShownText, CommandsNoTerminal) {
  EXPECT_EQ(shown_text("m\xc3\xbcller \xe2\x82\xac \xf0\x9f\x98\x80"),
            "m\xc3\xbcller \xe2\x82\xac \xf0\x9f\x98\x80");
  EXPECT_EQ(shown_text("a\nb\tc\rd"), "a b c?d");
  EXPECT_EQ(shown_text("\x1b[2J\x07\x7f"), "?[2J??");
  EXPECT_EQ(shown_text("\xc2\x9b"
                       "2J"),
            "?2J");
  EXPECT_EQ(shown_text("\xe2\x80\xae\xe2\x81\xa6\xef\xbb\xbf"), "???");
  EXPECT_EQ(shown_text(std::string_view("\0x", 2)), "?x");
  // No UTF-8: cut short, too long a form, half of a pair, beyond the last character.
  EXPECT_EQ(shown_text("\xc3"), "?");
  EXPECT_EQ(shown_text("\xe2\x82"), "??");
  EXPECT_EQ(shown_text("\xc0\x9b"), "??");
  EXPECT_EQ(shown_text("\xe0\x82\x9b"), "???");
  EXPECT_EQ(shown_text("\xed\xa0\x80"), "???");
  EXPECT_EQ(shown_text("\xf4\x90\x80\x80"), "????");
  EXPECT_EQ(shown_text("\x9b\xff"), "??");
}

TEST(ShownText, AgesAndTimes) {
  constexpr std::int64_t kSecond = 1000;
  EXPECT_EQ(age_text(0, 0), "0s");
  EXPECT_EQ(age_text(5000, 0), "0s");
  EXPECT_EQ(age_text(0, 59 * kSecond), "59s");
  EXPECT_EQ(age_text(0, 60 * kSecond), "1m");
  EXPECT_EQ(age_text(0, 3599 * kSecond), "59m");
  EXPECT_EQ(age_text(0, 3600 * kSecond), "1h");
  EXPECT_EQ(age_text(0, 47 * 3600 * kSecond), "47h");
  EXPECT_EQ(age_text(0, 48 * 3600 * kSecond), "2d");
  EXPECT_EQ(time_text(1'600'000'000'000), "2020-09-13 12:26:40");
  EXPECT_EQ(time_text(0), "-");
}

TEST(ShownText, Tables) {
  EXPECT_EQ(table_text({{"ID", "NAME", "LAST"}, {"1", "m\xc3\xbcller", "x"}, {"22", "a", ""}}),
            "ID  NAME    LAST\n"
            "1   m\xc3\xbcller  x\n"
            "22  a\n");
  EXPECT_EQ(table_text({{"a", "a long reason that is cut"}}, 20), "a  a long reason ...\n");
  EXPECT_EQ(table_text({{"a", "short"}}, 20), "a  short\n");
  EXPECT_EQ(table_text({{"a", "not cut in so little room"}}, 8), "a  not cut in so little room\n");
  EXPECT_EQ(table_text({{"\x1b", "b"}}), "?  b\n");
  EXPECT_EQ(table_text({}), "");
}

TEST(ShownText, Cuts) {
  EXPECT_EQ(cut_to("\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc\xc3\xbc", 4), "\xc3\xbc...");
  EXPECT_EQ(cut_to("abcde", 5), "abcde");
  EXPECT_EQ(cut_to("abcde", 2), "..");
  EXPECT_EQ(cut_to("abcde", 0), "");
}

}  // namespace
}  // namespace chainmail::launch
