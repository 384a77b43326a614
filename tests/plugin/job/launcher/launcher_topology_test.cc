// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/launcher/launcher_topology.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/plugin/job/recorded.h"

namespace chainmail::internal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The last rank of three, alone on the second node.
Welcome example() {
  Welcome welcome;
  welcome.rank = 2;
  welcome.node_of_rank = {0, 0, 1};
  welcome.addresses = {"198.51.100.7,192.0.2.21", "127.0.0.1"};
  return welcome;
}

JobInfo place(int rank, int size) {
  JobInfo info;
  info.starter = Starter::kLauncher;
  info.rank = rank;
  info.size = size;
  return info;
}

std::string interface_after(const std::string& login, const Welcome& welcome = example()) {
  return launcher_interface(welcome, environment_of({{"SSH_CONNECTION", login}}));
}

TEST(LauncherTopology, IsTheLaunchers) {
  const ops::Topology topology = launcher_topology(example(), place(2, 3));
  EXPECT_EQ(topology.size(), 3);
  EXPECT_EQ(topology.node_of(0), topology.node_of(1));
  EXPECT_NE(topology.node_of(1), topology.node_of(2));
}

TEST(LauncherTopology, RefusesAnotherPlaceThanTheLaunchers) {
  for (const JobInfo& info : {place(0, 3), place(2, 4)}) {
    try {
      (void)launcher_topology(example(), info);
      FAIL() << info.rank << " of " << info.size;
    } catch (const InvalidArgument& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("RANK=" + std::to_string(info.rank)),
                                      HasSubstr("WORLD_SIZE=" + std::to_string(info.size)),
                                      HasSubstr("rank 2 of 3")));
    }
  }
}

TEST(LauncherInterface, IsWhereSshFromAnotherNodeCameIn) {
  EXPECT_EQ(interface_after("192.0.2.21 50000 127.0.0.1 22"), "127.0.0.1");
}

TEST(LauncherInterface, IsLeftOpenWhenTheLoginIsNotFromTheJob) {
  EXPECT_EQ(launcher_interface(example(), environment_of({})), "");
  EXPECT_EQ(interface_after("203.0.113.5 50000 127.0.0.1 22"), "");
  EXPECT_EQ(interface_after("192.0.2.2 50000 127.0.0.1 22"), "") << "part of an address";
  EXPECT_EQ(interface_after("192.0.2.21 50000"), "");
  Welcome alone = example();
  alone.node_of_rank = {0, 0, 0};
  alone.addresses = {"192.0.2.21"};
  EXPECT_EQ(interface_after("192.0.2.21 50000 127.0.0.1 22", alone), "") << "one node";
}

TEST(LauncherInterface, IsLeftOpenWhenThisProcessDoesNotHaveTheAddress) {
  EXPECT_EQ(interface_after("192.0.2.21 50000 192.0.2.22 22"), "");
}

}  // namespace
}  // namespace chainmail::internal
