// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How often a job of fixed size is started anew, and with which hosts.

#include "launcher/controller/elastic/fixed/fixed_restarts.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace chainmail::launch {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

const FixedRestarts::Time kBegin;

std::vector<std::string> names_of(const std::vector<Host>& hosts) {
  std::vector<std::string> names;
  for (const Host& host : hosts) names.push_back(host.name);
  return names;
}

std::vector<Host> hosts_of(const std::vector<std::string>& names) {
  std::vector<Host> hosts;
  for (const std::string& name : names) hosts.emplace_back().name = name;
  return hosts;
}

TEST(FixedRestarts, ThreeFailuresInARowEndTheJob) {
  const Options options;
  FixedRestarts restarts(options);
  EXPECT_EQ(restarts.refusal(true, kBegin, kBegin + seconds(5)), "");
  // What was planned is no failure, and says nothing about the program.
  EXPECT_EQ(restarts.refusal(false, kBegin, kBegin + seconds(5)), "");
  EXPECT_EQ(restarts.refusal(true, kBegin, kBegin + seconds(5)), "");
  EXPECT_NE(restarts.refusal(true, kBegin, kBegin + seconds(5)), "");
}

TEST(FixedRestarts, OneThatHasRunForLongBeginsAnotherRow) {
  const Options options;
  FixedRestarts restarts(options);
  EXPECT_EQ(restarts.refusal(true, kBegin, kBegin + seconds(5)), "");
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(restarts.refusal(true, kBegin, kBegin + minutes(11)), "");
    EXPECT_EQ(restarts.refusal(true, kBegin, kBegin + seconds(5)), "");
  }
  EXPECT_NE(restarts.refusal(true, kBegin, kBegin + seconds(5)), "");
}

TEST(FixedRestarts, EachIsAChange) {
  Options options;
  options.elastic.max_changes = 2;
  FixedRestarts restarts(options);
  EXPECT_EQ(restarts.next_options().elastic.max_changes, 2U);
  EXPECT_EQ(restarts.refusal(false, kBegin, kBegin), "");
  EXPECT_EQ(restarts.next_options().elastic.max_changes, 1U);
  EXPECT_TRUE(restarts.next_options().elastic.is_fixed);
  EXPECT_EQ(restarts.refusal(true, kBegin, kBegin), "");
  EXPECT_EQ(restarts.next_options().elastic.max_changes, 0U);
  EXPECT_NE(restarts.refusal(false, kBegin, kBegin), "");
}

TEST(FixedRestarts, HostsAreThoseOfTheFileIfItIsClear) {
  HostSet latest;
  latest.hosts = hosts_of({"n1", "n2"});
  EXPECT_EQ(names_of(hosts_now(latest).hosts), (std::vector<std::string>{"n1", "n2"}));
  latest.file = ::testing::TempDir() + "fixed_restarts_hosts." + std::to_string(getpid());
  latest.text = "n1\nn2\n";
  const auto now = [&](const std::string& text, std::chrono::seconds age) {
    std::ofstream(latest.file) << text;
    const auto when = std::filesystem::file_time_type::clock::now() - age;
    std::filesystem::last_write_time(latest.file, when);
    return hosts_now(latest);
  };
  constexpr std::chrono::seconds kOld{10};
  const HostSet read = now("n3\nn4 slots=2\n", kOld);
  EXPECT_EQ(names_of(read.hosts), (std::vector<std::string>{"n3", "n4"}));
  EXPECT_EQ(read.text, "n3\nn4 slots=2\n");
  const auto is_kept = [](const HostSet& kept) {
    return names_of(kept.hosts) == std::vector<std::string>{"n1", "n2"} && kept.text == "n1\nn2\n";
  };
  for (const char* const unclear : {"n3\nn", "", "n3\nn3\n"}) {
    EXPECT_TRUE(is_kept(now(unclear, kOld))) << unclear;
  }
  EXPECT_TRUE(is_kept(now("n3\n", std::chrono::seconds(0)))) << "somebody may be writing it";
  std::filesystem::remove(latest.file);
  EXPECT_TRUE(is_kept(hosts_now(latest)));
}

TEST(FixedRestarts, WhoIsAboutToEndIsLeftOutWhereTheOthersAreEnough) {
  const auto without = [](const std::vector<std::string>& names, membership::SizeRange sizes) {
    std::vector<Host> hosts = hosts_of({"n1", "n2", "n3"});
    leave_out(names, sizes, hosts);
    return names_of(hosts);
  };
  EXPECT_EQ(without({"n2"}, {2, 4, 1}), (std::vector<std::string>{"n1", "n3"}));
  EXPECT_EQ(without({"n2"}, {3, 4, 1}), (std::vector<std::string>{"n1", "n2", "n3"}));
  EXPECT_EQ(without({}, {1, 4, 1}), (std::vector<std::string>{"n1", "n2", "n3"}));
}

}  // namespace
}  // namespace chainmail::launch
