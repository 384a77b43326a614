// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Options parse(const std::vector<std::string>& arguments) { return parse_options(arguments); }

std::string refusal(const std::vector<std::string>& arguments) {
  try {
    (void)parse(arguments);
    return "accepted";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Options, ProgramAndItsArgumentsAreNotTouched) {
  const Options options = parse({"-n", "4", "./train_mnist", "-n", "7", "--epoch=3", "--", "-x"});
  EXPECT_EQ(options.ranks, 4);
  EXPECT_THAT(options.program, ElementsAre("./train_mnist", "-n", "7", "--epoch=3", "--", "-x"));
  EXPECT_TRUE(options.variables.empty());
}

TEST(Options, DoubleDashEndsOptions) {
  EXPECT_THAT(parse({"-n", "1", "--", "-strange"}).program, ElementsAre("-strange"));
}

TEST(Options, SpellingsOfOneFlag) {
  for (const char* name : {"--per-node", "--per_node", "-N", "--npernode", "-npernode"}) {
    EXPECT_EQ(parse({name, "3", "p"}).per_node, 3) << name;
  }
  EXPECT_EQ(parse({"--per_node=3", "p"}).per_node, 3);
  EXPECT_EQ(parse({"-np", "8", "p"}).ranks, 8);
  EXPECT_EQ(parse({"-n=8", "p"}).ranks, 8);
  EXPECT_TRUE(parse({"--dry_run"}).dry_run);
  EXPECT_EQ(parse({"-H", "hosts", "p"}).hosts, "hosts");
  EXPECT_EQ(parse({"--hostfile", "hosts", "p"}).hostfile, "hosts");
}

TEST(Options, VariablesAddUp) {
  const Options options = parse({"-x", "A", "-x", "B=", "-x", "C=1=2", "p"});
  ASSERT_EQ(options.variables.size(), 3U);
  EXPECT_EQ(options.variables[0].name, "A");
  EXPECT_FALSE(options.variables[0].value.has_value());
  EXPECT_EQ(options.variables[1].value, "");
  EXPECT_EQ(options.variables[2].value, "1=2");
}

TEST(Options, Times) {
  EXPECT_EQ(parse({"--timeout", "1.5", "p"}).timeout, milliseconds(1500));
  EXPECT_EQ(parse({"--timeout=10m", "p"}).timeout, milliseconds(600000));
  EXPECT_EQ(parse({"--grace", "2h", "p"}).grace, milliseconds(7200000));
  for (const char* bad : {"", "x", "-1", "1d", "nan", "inf", "1e300", "1s2"}) {
    EXPECT_THAT(refusal({std::string("--timeout=") + bad, "p"}), HasSubstr("--timeout")) << bad;
  }
}

TEST(Options, BadUsageIsOneSentence) {
  EXPECT_THAT(refusal({}), HasSubstr("no program"));
  EXPECT_THAT(refusal({"-n"}), HasSubstr("-n needs a value"));
  EXPECT_THAT(refusal({"-n", "0", "p"}), HasSubstr("'0'"));
  EXPECT_THAT(refusal({"-n", "two", "p"}), HasSubstr("'two'"));
  EXPECT_THAT(refusal({"-n", "99999999999", "p"}), HasSubstr("65536"));
  EXPECT_THAT(refusal({"--frobnicate", "p"}), HasSubstr("--frobnicate"));
  EXPECT_THAT(refusal({"--oversubscribe=1", "p"}), HasSubstr("no value"));
  EXPECT_THAT(refusal({"-x", "A-B", "p"}), HasSubstr("A-B"));
  EXPECT_THAT(refusal({"-x", "=1", "p"}), HasSubstr("=1"));
  EXPECT_THAT(refusal({"--json", "p"}), HasSubstr("--dry-run"));
  EXPECT_THAT(refusal({"-H", "a", "--hostfile", "b", "p"}), HasSubstr("exclude"));
  EXPECT_THAT(refusal({"-H", "", "p"}), HasSubstr("empty"));
  EXPECT_THAT(refusal({""}), HasSubstr("empty"));
}

TEST(SplitCommand, QuotesAndEscapes) {
  EXPECT_THAT(split_command("ssh -F  '/a b/c'"), ElementsAre("ssh", "-F", "/a b/c"));
  EXPECT_THAT(split_command("a\\ b \"c 'd'\" ''"), ElementsAre("a b", "c 'd'", ""));
  EXPECT_THROW((void)split_command("ssh 'x"), UsageError);
  EXPECT_THROW((void)split_command("  "), UsageError);
}

}  // namespace
}  // namespace chainmail::launch
