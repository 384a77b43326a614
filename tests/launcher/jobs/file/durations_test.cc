// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Times of both forms, and command lines that bash read.

#include "launcher/jobs/file/text/durations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/job/expansion.h"
#include "launcher/jobs/file/text/shell_words.h"

namespace chainmail::launch {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Spelling {
  const char* text;
  milliseconds time;
};

TEST(Durations, OfTheModernForm) {
  const Spelling kSpellings[] = {
      {"30m", minutes(30)},     {"90s", seconds(90)},         {"2h", hours(2)},
      {"1.5h", minutes(90)},    {"7d", hours(168)},           {"45", seconds(45)},
      {"0", seconds(0)},        {"250ms", milliseconds(250)}, {"0.25s", milliseconds(250)},
      {"365d", hours(24 * 365)}};
  for (const Spelling& one : kSpellings) EXPECT_EQ(duration_in(one.text), one.time) << one.text;
  for (const char* text : {"", "m", "-1", "1 h", "1w", "1h30m", "1e3", "nan", "inf", ".5h", "366d",
                           "1.2.3s", "0x10", "1H", "99999999999999999999", "\xC2\xB5s"}) {
    EXPECT_EQ(duration_in(text), std::nullopt) << text;
  }
}

TEST(Durations, OfBatchAi) {
  const Spelling kSpellings[] = {
      {"P7D", hours(168)},
      {"PT12H", hours(12)},
      {"P1DT2H", hours(26)},
      {"PT1H30M", minutes(90)},
      {"PT90S", seconds(90)},
      {"PT0.5H", minutes(30)},
      {"P2W", hours(336)},
      {"7.00:00:00", hours(168)},
      {"00:10:00", minutes(10)},
      {"1.02:03:04.5", hours(26) + minutes(3) + milliseconds(4500)},
      {"7 days, 0:00:00", hours(168)},
      {"1 day, 12:30:00", hours(36) + minutes(30)},
      {"0:00:30", seconds(30)},
  };
  for (const Spelling& one : kSpellings) {
    EXPECT_EQ(batch_ai_duration_in(one.text), one.time) << one.text;
  }
  for (const char* text : {"",       "P",      "PT",      "P1DT",        "P1Y",
                           "P1M",    "PT1D",   "P1H",     "PT1M1H",      "PT1H1H",
                           "P-1D",   "7",      "7.5",     "24:00:00",    "0:60:00",
                           "0:0:60", "1:2",    "1:2:3:4", "-1.00:00:00", "7 weeks, 0:00:00",
                           "7 days", "P1000D", "T1H",     "pt1h"}) {
    EXPECT_EQ(batch_ai_duration_in(text), std::nullopt) << text;
  }
}

TEST(Durations, AreWrittenAsTheyAreRead) {
  const Spelling kTexts[] = {{"7d", hours(168)},   {"12h", hours(12)},
                             {"90m", minutes(90)}, {"61s", seconds(61)},
                             {"0s", seconds(0)},   {"1500ms", milliseconds(1500)}};
  for (const Spelling& one : kTexts) {
    EXPECT_EQ(duration_text(one.time), one.text);
    EXPECT_EQ(duration_in(duration_text(one.time)), one.time);
  }
}

std::vector<std::string> words_of(std::string_view line) {
  const ShellWords words = split_shell_words(line);
  EXPECT_THAT(words.problem, IsEmpty()) << line;
  return words.patterns;
}

TEST(ShellWords, AsShSplitsThem) {
  EXPECT_THAT(words_of("  -g  -o\t$OUT\n-n 5 "), ElementsAre("-g", "-o", "$OUT", "-n", "5"));
  EXPECT_THAT(words_of(R"(a' b 'c "d  e" '' "")"), ElementsAre("a b c", "d  e", "", ""));
  EXPECT_THAT(words_of(R"(a\ b \\ \" "\"\\\n" 'x\y')"),
              ElementsAre("a b", "\\", "\"", "\"\\\\n", "x\\y"));
  EXPECT_THAT(words_of("a\\\nb \"c\\\nd\""), ElementsAre("ab", "cd"));
  EXPECT_THAT(words_of("--x={1,2} a=b@c%d a~b !"), ElementsAre("--x={1,2}", "a=b@c%d", "a~b", "!"));
  EXPECT_THAT(words_of("'*.txt' \"a?b\" \\[c] ';' \"|\""),
              ElementsAre("*.txt", "a?b", "[c]", ";", "|"));
  EXPECT_THAT(words_of(""), IsEmpty());
  EXPECT_THAT(words_of(" \t "), IsEmpty());
}

TEST(ShellWords, DollarsBecomePatterns) {
  EXPECT_THAT(words_of("$A ${B}c \"$D e\" '$F' \\$G"),
              ElementsAre("$A", "${B}c", "$D e", "$$F", "$$G"));
  EXPECT_THAT(words_of("\"$A\"b $A'b' $A'.b'"), ElementsAre("${A}b", "${A}b", "$A.b"));
  EXPECT_THAT(words_of("cost=5$ \"$ x\" a$.b"), ElementsAre("cost=5$$", "$$ x", "a$$.b"));
  EXPECT_THAT(words_of("~ ~/data 'x'~/y"), ElementsAre("$HOME", "$HOME/data", "x~/y"));
  // What the pattern expands to is what sh would have made of the word.
  const Environment variables = {{"A", "1"}, {"Ab", "wrong"}, {"HOME", "/h"}};
  EXPECT_EQ(expanded(words_of("\"$A\"b'$A'\\$A").front(), variables), "1b$A$A");
}

TEST(ShellWords, WhatNeedsAShellIsRefusedWithItsPlace) {
  struct Refused {
    const char* line;
    std::size_t at;
    const char* says;
  };
  const Refused kRefused[] = {{"a $(date)", 2, "run a command"},
                              {"a \"`date`\"", 3, "run a command"},
                              {"`date`", 0, "run a command"},
                              {"ls *.txt", 3, "file names"},
                              {"a?", 1, "file names"},
                              {"[ab]", 0, "file names"},
                              {"a; b", 1, "needs a shell"},
                              {"a | b", 2, "needs a shell"},
                              {"a && b", 2, "needs a shell"},
                              {"a > log", 2, "needs a shell"},
                              {"(a)", 0, "needs a shell"},
                              {"a # b", 2, "needs a shell"},
                              {"'a", 0, "no end"},
                              {"x \"a", 2, "no end"},
                              {"a\\", 1, "backslash"},
                              {"$1", 0, "a shell's own"},
                              {"$$", 0, "a shell's own"},
                              {"\"$?\"", 1, "a shell's own"},
                              {"${A:-b}", 0, "may hold a name"},
                              {"${A", 0, "may hold a name"},
                              {"~root/x", 0, "another user"}};
  for (const Refused& refused : kRefused) {
    const ShellWords words = split_shell_words(refused.line);
    EXPECT_THAT(words.problem, HasSubstr(refused.says)) << refused.line;
    EXPECT_EQ(words.at, refused.at) << refused.line;
    EXPECT_THAT(words.patterns, IsEmpty()) << refused.line;
  }
}

TEST(ShellWords, VariablesOfALineThatAShellReads) {
  const auto names_of = [](const std::vector<NamedVariable>& variables) {
    std::vector<std::string> names;
    for (const NamedVariable& variable : variables) names.push_back(variable.name);
    return names;
  };
  const std::string line = R"(cd $A/b && x "${B:-1}" '$C' \$D $$E "it's $F")";
  EXPECT_THAT(names_of(shell_variables(line)), ElementsAre("A", "B", "F"));
  EXPECT_EQ(shell_variables("${ROOT}/logs").front().behind, "/logs");
  EXPECT_THAT(names_of(pattern_variables("'$A' $$B \\$C $")), ElementsAre("A", "C"));
}

TEST(ShellWords, CommentsAndHereDocumentsHaveNoQuotes) {
  const auto names_of = [](const std::string& script) {
    std::string names;
    for (const NamedVariable& variable : shell_variables(script)) names += variable.name;
    return names;
  };
  EXPECT_EQ(names_of("# don't $A\necho $B"), "B");
  EXPECT_EQ(names_of("echo a#b'$A' $B;# it's\n$C #\n$D"), "BCD");
  EXPECT_EQ(names_of("echo \"# $A\" ${#} $B # '"), "AB");
  EXPECT_EQ(names_of("cat <<END >x\nit's $A \\$B\nEND\necho '$C' $D"), "AD");
  EXPECT_EQ(names_of("cat <<'END' <<-\"E\"2; ls $A\n$B it's\nEND\n$C\n\tE2\necho $D"), "AD");
  EXPECT_EQ(names_of("cat <<-END # don't\n\tit's $A\n\tEND\n$B"), "AB");
  EXPECT_EQ(names_of("cat <<<\"$A\" && x $B"), "AB");
  for (const char* cut :
       {"cat <<", "cat <<-", "cat <<E", "cat <<E\n", "cat <<E\n$", "#", "<", "\\"}) {
    EXPECT_EQ(names_of(cut), "") << cut;
  }
}

TEST(ShellWords, QuotedForSh) {
  EXPECT_EQ(shell_word("plain-word_1.0/x=y,z"), "plain-word_1.0/x=y,z");
  EXPECT_EQ(shell_word(""), "''");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word_of_pattern("$$5 `x`"), "'$5 `x`'");
  EXPECT_EQ(shell_word_of_pattern("$A \"b\" \\ `c` $$d ${output.M}"),
            "\"$A \\\"b\\\" \\\\ \\`c\\` \\$d ${AZ_BATCHAI_OUTPUT_M}\"");
}

}  // namespace
}  // namespace chainmail::launch
