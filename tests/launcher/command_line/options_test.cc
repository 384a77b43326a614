// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/command_line/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "launcher/command_line/flags.h"
#include "launcher/command_line/values.h"
#include "tests/launcher/command_line/parsed.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Options, ProgramAndItsArgumentsAreNotTouched) {
  const Options options = parse({"-n", "4", "./train_mnist", "-n", "7", "--epoch=3", "--", "-x"});
  EXPECT_EQ(options.ranks, 4);
  EXPECT_THAT(options.program, ElementsAre("./train_mnist", "-n", "7", "--epoch=3", "--", "-x"));
  EXPECT_TRUE(options.variables.empty());
}

TEST(Options, RanksPerNodeInTorchrunsWords) {
  EXPECT_EQ(parse_per_node("-N", "3", 8), 3);
  EXPECT_EQ(parse_per_node("-N", "gpu", 8), 8);
  EXPECT_EQ(parse_per_node("-N", "auto", 8), 8);
  EXPECT_EQ(parse_per_node("-N", "auto", 0), std::nullopt);
  EXPECT_EQ(parse_per_node("-N", "cpu", 8), std::nullopt);
  EXPECT_THROW((void)parse_per_node("-N", "gpu", 0), UsageError);
  EXPECT_THROW((void)parse_per_node("-N", "gpus", 8), UsageError);
  EXPECT_EQ(parse({"--nproc-per-node", "cpu", "p"}).per_node, std::nullopt);
  std::string name = (std::filesystem::temp_directory_path() / "chainmail-gpus.XXXXXX").string();
  ASSERT_NE(mkdtemp(name.data()), nullptr);
  for (const char* device : {"nvidia0", "nvidia11", "nvidiactl", "nvidia-uvm", "null"}) {
    std::ofstream(name + "/" + device);
  }
  EXPECT_EQ(gpus_here(name), 2);
  std::filesystem::remove_all(name);
  EXPECT_EQ(gpus_here(name), 0);
}

TEST(Options, TheMapIsShownBesideTheJob) {
  EXPECT_TRUE(parse({"--display-map", "p"}).display_map);
  EXPECT_FALSE(parse({"--display-map", "p"}).dry_run);
  EXPECT_TRUE(parse({"--display-map", "--do-not-launch", "p"}).dry_run);
  EXPECT_THAT(refusal({"--display-map"}), HasSubstr("no program"));
}

TEST(Options, WhoAsksForLessOutputIsNotToldHowToGetMore) {
  EXPECT_THAT(refusal({"--quiet", "p"}), HasSubstr("CHAINMAIL_LOG=error"));
  EXPECT_THAT(refusal({"--verbose", "p"}), HasSubstr("CHAINMAIL_LOG=info"));
}

TEST(Options, DoubleDashEndsOptions) {
  EXPECT_THAT(parse({"-n", "1", "--", "-strange"}).program, ElementsAre("-strange"));
}

TEST(Options, SpellingsOfOneFlag) {
  for (const char* name : {"--per-node", "--per_node", "-per-node", "-N", "--npernode", "-npernode",
                           "-ppn", "--nproc-per-node", "--nproc_per_node", "--ntasks-per-node"}) {
    EXPECT_EQ(parse({name, "3", "p"}).per_node, 3) << name;
  }
  EXPECT_EQ(parse({"-pernode", "p"}).per_node, 1);
  EXPECT_EQ(parse({"-n4", "p"}).ranks, 4);
  EXPECT_EQ(parse({"-np4", "-N2", "p"}).per_node, 2);
  for (const char* name : {"--hostfile", "-hostfile", "-machinefile", "-f"}) {
    EXPECT_EQ(parse({name, "hosts", "p"}).hostfile, "hosts") << name;
  }
  for (const char* name : {"-H", "-host", "--host", "-hosts"}) {
    EXPECT_EQ(parse({name, "a,b", "p"}).hosts, "a,b") << name;
  }
  for (const char* name : {"--output", "--output-filename", "-output-filename"}) {
    EXPECT_EQ(parse({name, "d", "p"}).output_dir, "d") << name;
  }
  for (const char* name : {"--timestamp", "-timestamp-output"}) {
    EXPECT_TRUE(parse({name, "p"}).timestamp) << name;
  }
  for (const char* name : {"--tag-output", "-tag-output", "-prepend-rank", "-l"}) {
    EXPECT_TRUE(parse({name, "p"}).tag_output) << name;
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

TEST(Options, VariablesInTheWordsOfHydra) {
  const Options options = parse(
      {"-genv", "A", "1", "-env", "B", "2", "-genvlist", "C,D", "--env", "E", "-env", "F=3", "p"});
  ASSERT_EQ(options.common_variables.size(), 3U);
  EXPECT_EQ(options.common_variables[0].value, "1");
  EXPECT_EQ(options.common_variables[2].name, "D");
  EXPECT_FALSE(options.common_variables[2].value);
  ASSERT_EQ(options.variables.size(), 3U);
  EXPECT_EQ(options.variables[0].value, "2");
  EXPECT_EQ(options.variables[1].name, "E");
  EXPECT_FALSE(options.variables[1].value);
  EXPECT_EQ(options.variables[2].value, "3");
  EXPECT_THAT(refusal({"-genvlist", "A,,B", "p"}), HasSubstr("commas"));
}

TEST(Options, EncryptionIsForAllProgramsAndNobodySaysOtherwise) {
  EXPECT_TRUE(parse({"p"}).common_variables.empty());
  const auto value_of = [](const Options& options) {
    EXPECT_EQ(options.common_variables.size(), 1U);
    EXPECT_EQ(options.common_variables.at(0).name, "CHAINMAIL_ENCRYPT");
    return options.common_variables.at(0).value;
  };
  EXPECT_EQ(value_of(parse({"--encrypt", "p"})), "encrypt");
  EXPECT_EQ(value_of(parse({"--authenticate", "p"})), "authenticate");
  EXPECT_EQ(value_of(parse({"--authenticate", "--encrypt", "p"})), "encrypt");
  EXPECT_EQ(value_of(parse({"--encrypt", "--authenticate", "p"})), "encrypt");
  EXPECT_EQ(value_of(parse({"-n", "1", "p", ":", "-n", "1", "--encrypt", "p"})), "encrypt");
  EXPECT_THAT(refusal({"--encrypt", "-x", "CHAINMAIL_ENCRYPT=off", "p"}),
              HasSubstr("leave the option or the variable out"));
  EXPECT_THAT(
      refusal({"--authenticate", "-n", "1", "p", ":", "-n", "1", "-x", "CHAINMAIL_ENCRYPT", "p"}),
      HasSubstr("CHAINMAIL_ENCRYPT for all ranks"));
  EXPECT_THAT(refusal({"--encrypt", "-genv", "CHAINMAIL_ENCRYPT", "off", "p"}),
              HasSubstr("CHAINMAIL_ENCRYPT for all ranks"));
  EXPECT_THAT(refusal({"--encrypt=yes", "p"}), HasSubstr("no value"));
}

TEST(Options, ShardsAreForAllPrograms) {
  const Options options = parse({"-n", "1", "p", ":", "-n", "1", "--shards", "8", "p"});
  ASSERT_EQ(options.common_variables.size(), 1U);
  EXPECT_EQ(options.common_variables.at(0).name, "CHAINMAIL_SHARDS");
  EXPECT_EQ(options.common_variables.at(0).value, "8");
  for (const char* text : {"0", "-1", "65537", "8x", ""}) {
    EXPECT_THAT(refusal({"--shards", text, "p"}), HasSubstr("a number from 1 to 65536"));
  }
  EXPECT_THAT(refusal({"--shards", "8", "-x", "CHAINMAIL_SHARDS=4", "p"}),
              HasSubstr("--shards sets CHAINMAIL_SHARDS for all ranks; leave"));
}

TEST(Options, WorkingDirectoryIsAbsolute) {
  const std::string here = std::filesystem::current_path().string();
  for (const char* name : {"--wdir", "-wdir", "--chdir", "-wd", "-D"}) {
    EXPECT_EQ(parse({name, "./a/../b", "p"}).working_directory, here + "/b") << name;
  }
  EXPECT_EQ(parse({"--wdir", "/x", "p"}).working_directory, "/x");
  EXPECT_EQ(parse({"p"}).working_directory, "");
}

TEST(Options, TreeInTheWordsOfOthers) {
  EXPECT_EQ(parse({"p"}).tree_width, std::nullopt);
  EXPECT_EQ(parse({"--tree", "auto", "p"}).tree_width, std::nullopt);
  for (const char* word : {"no", "none", "off"}) {
    EXPECT_EQ(parse({"--tree", word, "p"}).tree_width, 0U) << word;
  }
  for (const char* name : {"--tree", "--treewidth", "--tree-width", "-branch-count"}) {
    EXPECT_EQ(parse({name, "16", "p"}).tree_width, 16U) << name;
  }
  for (const char* word : {"0", "1", "1025", "-2", "2x", "wide", ""}) {
    EXPECT_THAT(refusal({"--tree", word, "p"}), HasSubstr("auto, no or a number from 2 to 1024"));
  }
  EXPECT_THAT(refusal({"--mca", "plm_rsh_no_tree_spawn", "1", "p"}), HasSubstr("--tree no"));
  EXPECT_THAT(refusal({"--mca", "routed_radix", "8", "p"}), HasSubstr("--tree WIDTH"));
}

TEST(Options, Binding) {
  const auto binding = [](const std::vector<std::string>& arguments) {
    return parse(arguments).binding;
  };
  EXPECT_EQ(binding({"p"}).to, BindTo::kShare);
  EXPECT_EQ(binding({"--bind-to", "core", "p"}).to, BindTo::kCore);
  EXPECT_EQ(binding({"-bind-to", "Socket", "p"}).to, BindTo::kSocket);
  EXPECT_EQ(binding({"--bind-to-none", "p"}).to, BindTo::kNone);
  EXPECT_EQ(binding({"--bind-to", "core:2", "p"}).width, 2U);
  EXPECT_TRUE(binding({"--bind-to", "core:overload-allowed", "p"}).overload);
  EXPECT_TRUE(binding({"--bind-to", "core", "--oversubscribe", "p"}).overload);
  EXPECT_EQ(binding({"--map-by", "slot:PE=4", "p"}).to, BindTo::kCore);
  EXPECT_EQ(binding({"--map-by", "slot:PE=4", "p"}).width, 4U);
  EXPECT_EQ(binding({"--map-by", "slot:pe=2", "--bind-to", "hwthread", "p"}).to, BindTo::kHwthread);
  EXPECT_EQ(binding({"--bind-to", "hwthread", "--map-by", "slot:pe=2", "p"}).to, BindTo::kHwthread);
  EXPECT_TRUE(binding({"--map-by", "socket", "p"}).scatter);
  EXPECT_EQ(binding({"--map-by", "socket", "p"}).to, BindTo::kSocket);
  EXPECT_EQ(binding({"--map-by", "numa", "--bind-to", "core", "p"}).to, BindTo::kCore);
  EXPECT_THAT(refusal({"--bind-to", "board", "p"}), HasSubstr("'board'"));
  EXPECT_THAT(refusal({"--map-by", "slot:pe=0", "p"}), HasSubstr("pe="));
  EXPECT_THAT(refusal({"--map-by", "slot:span", "p"}), HasSubstr("'span'"));
}

TEST(Options, Mapping) {
  EXPECT_EQ(parse({"p"}).map_by, std::nullopt);
  EXPECT_EQ(parse({"--map-by", "node", "p"}).map_by, MapBy::kNode);
  EXPECT_EQ(parse({"-bynode", "p"}).map_by, MapBy::kNode);
  EXPECT_TRUE(parse({"--map-by", "node:oversubscribe", "p"}).oversubscribe);
  EXPECT_TRUE(parse({"--map-by", ":OVERSUBSCRIBE", "p"}).oversubscribe);
  EXPECT_EQ(parse({"--map-by", "ppr:2:node", "p"}).per_node, 2);
  EXPECT_EQ(parse({"--map-by", "ppr:2:node:pe=3", "p"}).binding.width, 3U);
  EXPECT_FALSE(parse({"p"}).rank_by);
  EXPECT_EQ(parse({"--rank-by", "node", "p"}).rank_by, MapBy::kNode);
  EXPECT_THAT(refusal({"--map-by", "ppr:2:socket", "p"}), HasSubstr("ppr:N:node"));
  EXPECT_THAT(refusal({"--map-by", "ppr:x:node", "p"}), HasSubstr("ppr:N:node"));
  EXPECT_THAT(refusal({"--map-by", "ppr", "p"}), HasSubstr("ppr:N:node"));
  EXPECT_THAT(refusal({"--map-by", "seq", "p"}), HasSubstr("'seq'"));
  EXPECT_THAT(refusal({"--rank-by", "socket", "p"}), HasSubstr("'socket'"));
}

TEST(Options, StandardInput) {
  EXPECT_EQ(parse({"p"}).input.kind, InputTarget::Kind::kRank);
  EXPECT_EQ(parse({"p"}).input.rank, 0);
  EXPECT_EQ(parse({"--stdin", "3", "p"}).input.rank, 3);
  EXPECT_EQ(parse({"-stdin", "all", "p"}).input.kind, InputTarget::Kind::kAll);
  EXPECT_EQ(parse({"--stdin=none", "p"}).input.kind, InputTarget::Kind::kNone);
  EXPECT_THAT(refusal({"--stdin", "-1", "p"}), HasSubstr("'-1'"));
}

TEST(Options, SeveralPrograms) {
  const Options options = parse({"-n", "1", "-x", "A=1", "./a", "--x", "2", ":", "-n", "3",
                                 "--wdir", "/w", "--tag-output", "./b", ":", "-H", "h", "./c"});
  EXPECT_TRUE(options.tag_output) << "options of the whole job may stand anywhere";
  const auto programs = applications_of(options);
  ASSERT_EQ(programs.size(), 3U);
  EXPECT_THAT(programs[0].program, ElementsAre("./a", "--x", "2"));
  EXPECT_EQ(programs[0].ranks, 1);
  EXPECT_EQ(programs[0].variables.size(), 1U);
  EXPECT_EQ(programs[1].ranks, 3);
  EXPECT_EQ(programs[1].working_directory, "/w");
  EXPECT_TRUE(programs[1].variables.empty());
  EXPECT_EQ(programs[2].hosts, "h");
  EXPECT_THAT(refusal({"-n", "1", "a", ":"}), HasSubstr("beside ':'"));
  EXPECT_THAT(refusal({"-n", "1", "a", ":", "-n", "2"}), HasSubstr("beside ':'"));
  EXPECT_THAT(refusal({":", "-n", "2", "b"}), HasSubstr("beside ':'"));
  EXPECT_THAT(refusal({"-n", "1", "a", ":", "b"}), HasSubstr("b has none"));
  EXPECT_THAT(refusal({"-n", "1", "a", ":", "-n", "2", "-H", "x", "--hostfile", "y", "b"}),
              HasSubstr("exclude"));
}

TEST(Options, AColonIsAnArgumentBehindTwoDashes) {
  const Options options = parse({"-n", "1", "--", "p", ":", "-n", "2", "q"});
  EXPECT_TRUE(options.more_applications.empty());
  EXPECT_THAT(options.program, ElementsAre("p", ":", "-n", "2", "q"));
  EXPECT_THAT(parse({"p", "a:b", "::"}).program, ElementsAre("p", "a:b", "::"));
}

TEST(Options, UnknownOnesNameTheNearest) {
  EXPECT_THAT(refusal({"--hostflie", "p"}), HasSubstr("did you mean --hostfile?"));
  EXPECT_THAT(refusal({"--oversubscibe", "p"}), HasSubstr("did you mean --oversubscribe?"));
  EXPECT_THAT(refusal({"-tagoutput", "p"}), HasSubstr("did you mean --tag-output?"));
  EXPECT_THAT(refusal({"--learning-rate", "p"}),
              HasSubstr("options of the program come after the program's name"));
  EXPECT_THAT(refusal({"--learning-rate", "p"}), ::testing::Not(HasSubstr("did you mean")));
}

TEST(Options, ThoseOfOtherLaunchersSayWhatToDoInstead) {
  EXPECT_THAT(refusal({"--mca", "btl", "^openib", "p"}), HasSubstr("-x OMPI_MCA_btl=^openib"));
  EXPECT_THAT(refusal({"-mca", "plm_rsh_args", "-p 22", "p"}),
              HasSubstr("-x 'OMPI_MCA_plm_rsh_args=-p 22'"));
  EXPECT_THAT(refusal({"--nnodes", "2", "p"}), HasSubstr("-H"));
  EXPECT_THAT(refusal({"--nnodes=2", "p"}), ::testing::StartsWith("--nnodes is not needed"));
  EXPECT_THAT(refusal({"--rdzv_endpoint=h:29400", "p"}), HasSubstr("itself"));
  EXPECT_THAT(refusal({"--slots-per-host", "2", "p"}), HasSubstr("--elastic MIN:MAX"));
  EXPECT_THAT(refusal({"-genvall", "p"}), HasSubstr("-x NAME"));
  EXPECT_THAT(refusal({"-c", "2", "p"}), HasSubstr("--map-by slot:pe=N"));
  EXPECT_THAT(refusal({"-p", "2222", "p"}), HasSubstr("--rsh-args"));
  EXPECT_THAT(refusal({"--partition", "gpu", "p"}), HasSubstr("sbatch"));
  EXPECT_THAT(refusal({"--use-gloo", "p"}), HasSubstr("--communicator"));
  EXPECT_EQ(parse({"--allow-run-as-root", "-n", "1", "p"}).ranks, 1) << "it is true here anyway";
}

TEST(Flags, NoNameMeansTwoThings) {
  std::set<std::string> names;
  for (const Flag& flag : known_flags()) {
    for (const std::string& name : flag.names) {
      EXPECT_TRUE(names.insert(name).second) << name;
      EXPECT_EQ(name.find('_'), std::string::npos) << name;
    }
    EXPECT_EQ(flag.level == HelpLevel::kAlias, flag.synopsis.empty()) << flag.names.front();
  }
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Help, FitsOnAScreen) {
  const auto lines = lines_of(usage_text());
  EXPECT_LE(lines.size(), 24U);
  for (const std::string& line : lines) EXPECT_LE(line.size(), 80U) << line;
  for (const std::string& line : lines_of(full_usage_text())) EXPECT_LE(line.size(), 100U) << line;
}

TEST(Help, NamesEveryOption) {
  const std::string text = full_usage_text();
  for (const Flag& flag : known_flags()) EXPECT_THAT(text, HasSubstr(flag.synopsis));
  EXPECT_THAT(usage_text(), HasSubstr("--help-all"));
}

TEST(Options, Times) {
  EXPECT_EQ(parse({"--timeout", "1.5", "p"}).timeout, milliseconds(1500));
  EXPECT_EQ(parse({"--timeout=10m", "p"}).timeout, milliseconds(600000));
  EXPECT_EQ(parse({"--timeout=250ms", "p"}).timeout, milliseconds(250));
  EXPECT_EQ(parse({"--wait-hosts", "7d", "p"}).wait_hosts, milliseconds(604'800'000));
  EXPECT_EQ(parse({"--grace", "2h", "p"}).grace, milliseconds(7200000));
  for (const char* bad : {"", "x", "-1", "1w", "366d", "nan", "inf", "1e300", "1s2"}) {
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

TEST(RemoteShell, ArgumentsFollowTheCommand) {
  EXPECT_THAT(remote_shell_of(parse({"p"})), ElementsAre("ssh"));
  EXPECT_THAT(remote_shell_of(parse({"--rsh-args", "-p 22", "p"})), ElementsAre("ssh", "-p", "22"));
  EXPECT_THAT(remote_shell_of(parse({"--rsh", "/x/ssh -v", "--rsh-args", "-p 22 -i 'a b'", "p"})),
              ElementsAre("/x/ssh", "-v", "-p", "22", "-i", "a b"));
  EXPECT_THROW((void)remote_shell_of(parse({"--rsh", "ip %h", "--rsh-args", "-p", "p"})),
               UsageError);
  EXPECT_THROW((void)remote_shell_of(parse({"--rsh-args", "'", "p"})), UsageError);
}

}  // namespace
}  // namespace chainmail::launch
