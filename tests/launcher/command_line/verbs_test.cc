// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The table of verbs, and what may stand behind one.

#include "launcher/command_line/verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "launcher/command_line/parse.h"
#include "launcher/job/options.h"

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

VerbWords words_of(const std::string& verb, const std::vector<std::string>& arguments) {
  return {*find_verb(verb), arguments};
}

std::string refusal_of(const std::string& verb, const std::vector<std::string>& arguments) {
  try {
    (void)words_of(verb, arguments);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Verbs, AreInTheHelp) {
  std::set<std::string> names;
  for (const JobVerb& verb : job_verbs()) {
    EXPECT_TRUE(names.insert(verb.name).second) << verb.name;
    EXPECT_THAT(full_usage_text(), HasSubstr("  " + synopsis_of(verb)));
    EXPECT_FALSE(verb.help.empty()) << verb.name;
    for (const VerbOption& option : verb.options) {
      EXPECT_THAT(help_of(verb), HasSubstr(option.names.back()));
      EXPECT_THAT(help_of(verb), HasSubstr(option.help));
    }
  }
  EXPECT_EQ(find_verb("run"), nullptr);
  EXPECT_EQ(synopsis_of(*find_verb("wait")), "wait [--timeout TIME] JOB...");
}

TEST(Verbs, OptionsStandAnywhere) {
  const VerbWords words = words_of("logs", {"-fn5", "mnist", "--rank=3", "--stderr"});
  EXPECT_THAT(words.operands(), ElementsAre("mnist"));
  EXPECT_TRUE(words.has("-f"));
  EXPECT_EQ(words.value_of("-n"), "5");
  EXPECT_EQ(words.value_of("--rank"), "3");
  EXPECT_TRUE(words.has("--stderr"));
  EXPECT_FALSE(words.has("--events"));
  EXPECT_EQ(words.value_of("--events"), std::nullopt);
  EXPECT_EQ(words_of("logs", {"a", "-n", "-3"}).value_of("-n"), "-3");
  EXPECT_EQ(words_of("logs", {"a", "--lines", "7"}).value_of("-n"), "7");
  EXPECT_EQ(words_of("logs", {"a", "-n", "1", "-n", "2"}).value_of("-n"), "2");
  EXPECT_TRUE(words_of("ps", {"-aq"}).has("-q"));
  EXPECT_TRUE(words_of("ps", {"-json"}).has("--json"));
  EXPECT_EQ(words_of("wait", {"-timeout=3", "a"}).value_of("--timeout"), "3");
}

TEST(Verbs, TwoDashesEndOptions) {
  EXPECT_THAT(words_of("ls", {"--", "-l", "--json"}).operands(), ElementsAre("-l", "--json"));
  EXPECT_THAT(words_of("ls", {"-l", "-"}).operands(), ElementsAre("-"));
  EXPECT_THAT(words_of("ps", {"--"}).operands(), IsEmpty());
}

TEST(Verbs, RefuseWhatTheyDoNotKnow) {
  EXPECT_THAT(refusal_of("ls", {}), HasSubstr("usage: launcher ls [-l] [--json] JOB"));
  EXPECT_THAT(refusal_of("ls", {"a", "b", "c", "d"}), HasSubstr("'d' is too much"));
  EXPECT_THAT(refusal_of("rm", {"--output", "a"}), HasSubstr("did you mean --outputs?"));
  EXPECT_THAT(refusal_of("ps", {"-x"}), HasSubstr("'-x'"));
  EXPECT_THAT(refusal_of("ps", {"-ax"}), HasSubstr("'-x'"));
  EXPECT_THAT(refusal_of("ps", {"--json=yes"}), HasSubstr("no value"));
  EXPECT_THAT(refusal_of("logs", {"a", "-n"}), HasSubstr("-n needs a value"));
}

}  // namespace
}  // namespace chainmail::launch
