// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Pages that are made from the tables: what a shell or groff would take for something else is
// escaped, and nothing is left out. tests/launcher/jobs/verbs/outputs_test.py has the programs read
// them.

#include "launcher/command_line/pages/pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "launcher/command_line/verbs.h"
#include "launcher/job/options.h"
#include "launcher/job/text.h"

namespace chainmail::launch {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Pages, OptionsAsTheyAreWritten) {
  const auto option = [](const std::string& name) { return shown_option(*find_flag(name)); };
  EXPECT_THAT(option("n").names, ElementsAre("-n", "-np"));
  EXPECT_EQ(option("n").value, "N");
  EXPECT_THAT(option("help").names, ElementsAre("--help", "--help-all"));
  EXPECT_EQ(option("help").value, "");
  EXPECT_THAT(option("genvlist").names, ElementsAre("-genvlist"));
  EXPECT_EQ(option("genvlist").value, "A,B");
  EXPECT_EQ(option("x").value, "NAME[=VALUE]");
  for (const ShownOption& shown : shown_options()) {
    ASSERT_FALSE(shown.names.empty());
    for (const std::string& name : shown.names) {
      const FlagWords words(std::span(&name, 1));
      EXPECT_NE(find_flag(words.name()), nullptr) << name;
    }
    EXPECT_EQ(shown.help.find('\n'), std::string::npos);
  }
}

TEST(Pages, NameEveryOptionAndVerb) {
  const std::string man = man_page("1.2.3");
  EXPECT_THAT(man, HasSubstr("chainmail 1.2.3"));
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const std::string text = completion_for(shell);
    EXPECT_THAT(text, HasSubstr("ps -a -q"));
    for (const JobVerb& verb : job_verbs()) EXPECT_THAT(text, HasSubstr(verb.name)) << shell;
    for (const ShownOption& option : shown_options()) {
      const std::string& name = option.names.back();
      const std::string bare = name.substr(name.find_first_not_of('-'));
      EXPECT_THAT(text, HasSubstr(shell == std::string("fish") ? bare : name)) << shell;
    }
  }
  EXPECT_THROW((void)completion_for("csh"), UsageError);
}

TEST(Pages, GroffTakesNothingForARequest) {
  for (const std::string& line : split(man_page("1"), '\n')) {
    if (line.empty()) continue;
    EXPECT_NE(line.front(), '\'') << line;
    if (line.front() != '.') continue;
    const std::string request = line.substr(1, line.find(' ') - 1);
    EXPECT_THAT((std::vector<std::string>{"TH", "SH", "SS", "TP", "B", "BR", "I", "PP", "br"}),
                Contains(request));
  }
}

}  // namespace
}  // namespace chainmail::launch
