// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which control group accounts for the memory of a process, and who was killed for it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "launcher/cgroup/oom_detector.h"

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;

constexpr char kMounts[] =
    "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
    "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
    "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

TEST(MemoryGroup, OfTheFirstVersion) {
  const MemoryGroup group =
      find_memory_group("9:name=systemd:/\n4:cpu,memory:/batch/job 7\n0::/x\n", kMounts);
  EXPECT_EQ(group.folder, "/sys/fs/cgroup/memory/batch/job 7");
  EXPECT_FALSE(group.is_unified);
}

TEST(MemoryGroup, OfTheSecondVersion) {
  const MemoryGroup group = find_memory_group("0::/user.slice/job", kMounts);
  EXPECT_EQ(group.folder, "/sys/fs/cgroup/unified/user.slice/job");
  EXPECT_TRUE(group.is_unified);
}

TEST(MemoryGroup, InAContainerThatSeesAPart) {
  const MemoryGroup group = find_memory_group(
      "0::/docker/abc/job", "30 1 0:2 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n");
  EXPECT_EQ(group.folder, "/sys/fs/cgroup/job");
}

TEST(MemoryGroup, NothingToBeSeenIsNoError) {
  EXPECT_EQ(find_memory_group("", kMounts).folder, "");
  EXPECT_EQ(find_memory_group("0::/x", "").folder, "");
  EXPECT_EQ(find_memory_group("::::\n4:memory\n", "- - -\n a b - c\n").folder, "");
}

TEST(OomDetector, AKillByAPersonIsNoLackOfMemory) {
  OomDetector detector;
  detector.look(getpid());
  const KillReport report = detector.explain(getpid(), 3 << 10);
  EXPECT_FALSE(report.is_out_of_memory);
  EXPECT_THAT(report.detail, HasSubstr("it had used up to 3 MiB"));
}

}  // namespace
}  // namespace chainmail::launch
