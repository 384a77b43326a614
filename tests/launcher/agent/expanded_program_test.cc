// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What patterns become on a rank's host, and in which order.

#include "launcher/agent/expanded_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OrderedProgram program_of(std::map<std::string, std::string> patterns,
                          std::vector<std::string> words = {"p"}) {
  OrderedProgram program;
  program.working_directory = "/";
  program.words = std::move(words);
  program.expands = true;
  program.patterns = std::move(patterns);
  return program;
}

const Environment kOutside = {{"HOME", "/home/me"}, {"PATH", "/bin"}, {"RANK", "old"}};
const Environment kFixed = {{"RANK", "3"}, {"NODE_RANK", "1"}, {"CHAINMAIL_JOB_TEMP", "/tmp/t"}};

Environment expanded_variables(std::map<std::string, std::string> patterns) {
  return expanded_program(program_of(std::move(patterns)), kOutside, kFixed).environment;
}

std::string why_not(const OrderedProgram& program) {
  try {
    (void)expanded_program(program, kOutside, kFixed);
  } catch (const SystemError& error) {
    return error.what();
  }
  return "";
}

TEST(ExpandedProgram, AProgramWithoutPatternsStaysAsItIs) {
  OrderedProgram program;
  program.working_directory = "/a$HOME";
  program.words = {"$HOME", "${RANK}", "$$"};
  program.variables = {{"X", "$HOME"}, {"RANK", "9"}};
  program.patterns = {{"Y", "never looked at"}};
  const ExpandedProgram result = expanded_program(program, kOutside, kFixed);
  EXPECT_EQ(result.words, program.words);
  EXPECT_EQ(result.working_directory, "/a$HOME");
  EXPECT_EQ(result.environment.at("X"), "$HOME");
  EXPECT_EQ(result.environment.at("PWD"), "/a$HOME");
  EXPECT_EQ(result.environment.at("RANK"), "3") << "the launcher's word is the last";
  EXPECT_FALSE(result.environment.contains("Y"));
}

TEST(ExpandedProgram, WordsAndFolderSeeAllVariables) {
  OrderedProgram program = program_of({{"OUT", "$CHAINMAIL_JOB_TEMP/out"}},
                                      {"$HOME/p", "--rank=${RANK}", "$OUT/$NODE_RANK", "a$$b"});
  program.working_directory = "$OUT";
  program.variables = {{"X", "literal $HOME"}};
  const ExpandedProgram result = expanded_program(program, kOutside, kFixed);
  EXPECT_THAT(result.words, ElementsAre("/home/me/p", "--rank=3", "/tmp/t/out/1", "a$b"));
  EXPECT_EQ(result.working_directory, "/tmp/t/out");
  EXPECT_EQ(result.environment.at("PWD"), "/tmp/t/out");
  EXPECT_EQ(result.environment.at("X"), "literal $HOME") << "handed on as it is";
}

TEST(ExpandedProgram, PwdIsTheFolderThatTheProgramRunsIn) {
  OrderedProgram program = program_of({{"DATA", "$PWD/data"}}, {"p", "${PWD}/x"});
  program.working_directory = "$HOME/$RANK";
  const ExpandedProgram result = expanded_program(program, kOutside, kFixed);
  EXPECT_THAT(result.words, ElementsAre("p", "/home/me/3/x"));
  EXPECT_EQ(result.environment.at("DATA"), "/home/me/3/data");
  EXPECT_EQ(result.environment.at("PWD"), "/home/me/3");
}

TEST(ExpandedProgram, VariablesReferToEachOtherInAnyOrder) {
  const Environment variables =
      expanded_variables({{"A", "$B/a"}, {"B", "$C/b"}, {"C", "$HOME"}, {"Z", "$A"}});
  EXPECT_EQ(variables.at("A"), "/home/me/b/a");
  EXPECT_EQ(variables.at("Z"), "/home/me/b/a");
}

TEST(ExpandedProgram, AVariableThatRefersToItselfMeansTheOneOutside) {
  EXPECT_EQ(expanded_variables({{"PATH", "/opt:$PATH"}}).at("PATH"), "/opt:/bin");
  const Environment circle = expanded_variables({{"HOME", "$PATH:h"}, {"PATH", "$HOME:p"}});
  EXPECT_EQ(circle.at("HOME"), "/home/me:p:h");
  EXPECT_EQ(expanded_variables({{"NEW", "x$NEW"}}).at("NEW"), "x");
}

TEST(ExpandedProgram, WhatTheLauncherSetsIsNotToBeChanged) {
  const Environment variables = expanded_variables({{"RANK", "17"}, {"N", "$RANK"}});
  EXPECT_EQ(variables.at("RANK"), "3");
  EXPECT_EQ(variables.at("N"), "3");
}

TEST(ExpandedProgram, IdsOfInputsAndOutputsAreNamesToo) {
  const OrderedProgram program =
      program_of({{"AZ_BATCHAI_INPUT_DATA", "$HOME/d"}, {"AZ_BATCHAI_OUTPUT_M", "/m"}},
                 {"p", "${input.DATA}/x", "${output.M}"});
  EXPECT_THAT(expanded_program(program, kOutside, kFixed).words,
              ElementsAre("p", "/home/me/d/x", "/m"));
}

TEST(ExpandedProgram, UnknownNamesAreNothing) {
  EXPECT_EQ(expanded_variables({{"X", "a${NO_SUCH}b"}}).at("X"), "ab");
}

TEST(ExpandedProgram, WhatCannotBeRunHasAReason) {
  EXPECT_THAT(why_not(program_of({}, {"$NO_SUCH"})), HasSubstr("'$NO_SUCH' is nothing there"));
  OrderedProgram program = program_of({});
  program.working_directory = "$NO_SUCH";
  EXPECT_THAT(why_not(program), HasSubstr("'$NO_SUCH' is ''"));
  program.working_directory = "data/$RANK";
  EXPECT_THAT(why_not(program), HasSubstr("'data/3' there, which is no absolute path"));
}

TEST(ExpandedProgram, ValuesDoNotGrowWithoutEnd) {
  std::map<std::string, std::string> patterns = {{"V0", std::string(1000, 'x')}};
  for (int i = 1; i < 40; ++i) {
    const std::string last = "$V" + std::to_string(i - 1);
    patterns["V" + std::to_string(i)] = last + last + last;
  }
  EXPECT_THAT(why_not(program_of(patterns)), HasSubstr("longer than the 128 KiB"));
  std::string many;
  for (int i = 0; i < 100'000; ++i) many += "$V";
  EXPECT_THAT(why_not(program_of({{"V", std::string(100'000, 'x')}, {"W", many}})),
              HasSubstr("the variable W is longer"));
}

}  // namespace
}  // namespace chainmail::launch
