// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// --elastic, and what it can stand beside.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/launcher/command_line/parsed.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

std::string sizes_of(const std::vector<std::string>& arguments) {
  const membership::SizeRange sizes = parse(arguments).elastic.sizes();
  return std::to_string(sizes.min) + ":" + std::to_string(sizes.max) + ":" +
         std::to_string(sizes.multiple);
}

TEST(ElasticOptions, SizesInAllTheirForms) {
  EXPECT_FALSE(parse({"p"}).elastic.is_on());
  EXPECT_EQ(sizes_of({"--elastic", "2:8", "p"}), "2:8:1");
  EXPECT_EQ(sizes_of({"--elastic=:8", "p"}), "1:8:1");
  EXPECT_EQ(sizes_of({"--elastic", "2:", "--shards", "6", "p"}), "2:6:1");
  EXPECT_EQ(sizes_of({"--elastic", "2:8:2", "p"}), "2:8:2");
  EXPECT_EQ(sizes_of({"--min-np", "2", "--max-np", "4", "p"}), "2:4:1");
  for (const char* text : {"", "8", ":", "a:b", "1:2:3:4", "0:4", "2:8:0"}) {
    EXPECT_NE(refusal({"--elastic", text, "p"}), "accepted") << text;
  }
  EXPECT_THAT(refusal({"--elastic", "4:2", "p"}), HasSubstr("4:2 allows no number of ranks"));
  EXPECT_THAT(refusal({"--elastic", "3:3:2", "p"}), HasSubstr("allows no number of ranks"));
}

TEST(ElasticOptions, TheFirstSizeIsOneOfThem) {
  EXPECT_EQ(parse({"-n", "4", "--elastic", "2:8:2", "p"}).ranks, 4);
  EXPECT_THAT(refusal({"-n", "1", "--elastic", "2:8", "p"}), HasSubstr("-n 1 is none of the"));
  EXPECT_THAT(refusal({"-n", "9", "--elastic", "2:8", "p"}), HasSubstr("-n 9 is none of the"));
  EXPECT_THAT(refusal({"-n", "3", "--elastic", "2:8:2", "p"}), HasSubstr("-n 3 is none of the"));
}

TEST(ElasticOptions, ShardsAreAsManyAsRanksOrMore) {
  const Options options = parse({"--elastic", "2:8", "p"});
  EXPECT_EQ(options.shards, 8U);
  EXPECT_EQ(options.common_variables.at(0).name, "CHAINMAIL_SHARDS");
  EXPECT_EQ(options.common_variables.at(0).value, "8");
  EXPECT_EQ(parse({"--elastic", "2:8", "--shards", "16", "p"}).shards, 16U);
  EXPECT_THAT(refusal({"--elastic", "2:8", "--shards", "4", "p"}),
              HasSubstr("--shards 4 cannot occupy 8 ranks"));
  EXPECT_THAT(refusal({"--elastic", "2:", "p"}), HasSubstr("needs --shards V"));
}

TEST(ElasticOptions, WhatGoesWithThem) {
  const Options options =
      parse({"--elastic", "1:4", "--spares", "2", "--prepare", "sh -c true", "--prepare-timeout",
             "2m", "--elastic-window", "0.5", "--elastic-timeout", "60", "--drain-timeout", "5",
             "--cooldown", "2s:1m", "--reset-limit", "7", "p"});
  const ElasticOptions& elastic = options.elastic;
  EXPECT_EQ(elastic.spares, 2U);
  EXPECT_TRUE(elastic.has_gate());
  EXPECT_EQ(elastic.prepare_timeout, milliseconds(120000));
  EXPECT_EQ(elastic.window, milliseconds(500));
  EXPECT_EQ(elastic.timeout, milliseconds(60000));
  EXPECT_EQ(elastic.drain_timeout, milliseconds(5000));
  EXPECT_EQ(elastic.cool_down, milliseconds(2000));
  EXPECT_EQ(elastic.cool_down_most, milliseconds(60000));
  EXPECT_EQ(elastic.max_changes, 7U);
  const Options horovods =
      parse({"--elastic", "1:4", "--blacklist-cooldown-range", "10", "100", "p"});
  EXPECT_EQ(horovods.elastic.cool_down_most, milliseconds(100000));
  EXPECT_EQ(horovods.program.front(), "p");
  EXPECT_THAT(refusal({"--elastic", "1:4", "--cooldown", "5", "p"}), HasSubstr("two times"));
  EXPECT_THAT(refusal({"--elastic", "1:4", "--cooldown", "5m:1s", "p"}), HasSubstr("longest"));
}

TEST(ElasticOptions, TheGateIsOneThingAndCanBeRunHere) {
  EXPECT_TRUE(parse({"--elastic", "1:4", "--prepare-only-file", "p"}).elastic.has_gate());
  EXPECT_THAT(refusal({"--elastic", "1:4", "--prepare", "/no/such/file", "p"}),
              HasSubstr("/no/such/file is not executable here"));
  EXPECT_THAT(refusal({"--elastic", "1:4", "--prepare", "no-such-program x", "p"}),
              HasSubstr("no-such-program is not executable here"));
  EXPECT_THAT(refusal({"--elastic", "1:4", "--prepare", "sh", "--prepare-only-file", "p"}),
              HasSubstr("exclude each other"));
  EXPECT_THAT(refusal({"--prepare-only-file", "p"}), HasSubstr("go with --elastic"));
  EXPECT_THAT(refusal({"--spares", "1", "p"}), HasSubstr("go with --elastic"));
}

TEST(ElasticOptions, JobsOfFixedSizeArePreparedToo) {
  const Options options = parse({"--prepare", "sh -c 'a b'", "--prepare-timeout", "2m", "p"});
  EXPECT_FALSE(options.elastic.is_on());
  EXPECT_THAT(options.preparation.words, testing::ElementsAre("sh", "-c", "a b"));
  EXPECT_EQ(options.preparation.timeout, milliseconds(120000));
  EXPECT_FALSE(parse({"p"}).preparation.is_on());
  EXPECT_FALSE(parse({"--elastic", "1:4", "--prepare", "sh", "p"}).preparation.is_on())
      << "that is the gate's";
  EXPECT_THAT(refusal({"--prepare", "no-such-program", "p"}), HasSubstr("not executable here"));
  EXPECT_THAT(refusal({"--prepare", "sh 'open", "p"}), HasSubstr("quote that is not closed"));
  EXPECT_THAT(refusal({"--prepare-timeout", "60", "p"}), HasSubstr("goes with --prepare"));
}

TEST(ElasticOptions, OtherJobsWaitForHosts) {
  EXPECT_FALSE(parse({"p"}).wait_hosts);
  EXPECT_EQ(parse({"--wait-hosts", "5m", "p"}).wait_hosts, milliseconds(300000));
  EXPECT_EQ(parse({"--wait-hosts", "0", "p"}).wait_hosts, milliseconds(0));
  EXPECT_THAT(refusal({"--wait-hosts", "soon", "p"}), HasSubstr("--wait-hosts"));
}

TEST(ElasticOptions, StandAloneWhereTheyMust) {
  const std::vector<std::vector<std::string>> others = {
      {"--max-restarts", "1"}, {"--tree", "4"},    {"--mpi", "pmix"}, {"--per-node", "2"},
      {"--map-by", "node"},    {"--stdin", "all"}, {"--preload"},     {"--torchrun-env"},
      {"--include", "h"},      {"--exclude", "h"}, {"--stdin", "1"},  {"--rank-by", "node"},
      {"--wait-hosts", "1m"},
  };
  for (std::vector<std::string> words : others) {
    words.insert(words.end(), {"--elastic", "1:4", "p"});
    EXPECT_THAT(refusal(words), HasSubstr("and --elastic exclude each other")) << words.front();
  }
  EXPECT_THAT(refusal({"--elastic", "1:4", "-n", "1", "a", ":", "-n", "1", "b"}),
              HasSubstr("exclude each other"));
  const Options options = parse({"--elastic", "1:4", "--tree", "no", "--mpi", "none", "p"});
  EXPECT_EQ(options.mpi, MpiMode::kNone);
  EXPECT_EQ(options.input.kind, InputTarget::Kind::kNone);
}

TEST(ElasticOptions, KnowWhatTheyGoWith) {
  for (const std::vector<std::string>& options :
       std::vector<std::vector<std::string>>{{"--elastic-window", "1"},
                                             {"--elastic-timeout", "9"},
                                             {"--drain-timeout", "5"},
                                             {"--cooldown", "1s:5s"},
                                             {"--max-changes", "7"}}) {
    std::vector<std::string> line = options;
    line.push_back("p");
    EXPECT_THAT(refusal(line), AllOf(HasSubstr("with --elastic"), HasSubstr(options.front())));
  }
  EXPECT_THAT(refusal({"--resume", "p"}), HasSubstr("go with --elastic"));
  EXPECT_THAT(refusal({"--discovery-interval", "1", "--host-discovery", "sh", "p"}),
              HasSubstr("goes with --elastic"));
  EXPECT_THAT(refusal({"--elastic", "1:4", "--discovery-interval", "1", "p"}),
              HasSubstr("goes with --host-discovery"));
  EXPECT_THAT(
      refusal({"--elastic", "1:4", "--host-discovery", "sh", "--discovery-interval", "0.01", "p"}),
      HasSubstr("0.1 s at least"));
}

}  // namespace
}  // namespace chainmail::launch
