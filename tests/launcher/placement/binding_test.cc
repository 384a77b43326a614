// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a node's cores are shared out among its ranks.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "launcher/job/options.h"
#include "launcher/placement/cpu_shares.h"

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;

// Two sockets with two NUMA nodes each and two cores in each of these, two threads per core: core i
// has the processors i and i + 8.
std::vector<Core> two_sockets() {
  std::vector<Core> cores;
  for (int i = 0; i < 8; ++i) cores.push_back({{i, i + 8}, i / 2, i / 2, i / 4});
  return cores;
}

std::vector<Core> plain_cores(int count) {
  std::vector<Core> cores;
  for (int i = 0; i < count; ++i) cores.push_back({{i}, 0, 0, 0});
  return cores;
}

// "0,8 1,9": the processors of each rank.
std::string shares(int ranks, const Binding& binding, const std::vector<Core>& cores) {
  std::string text;
  for (const CpuShare& share : share_cores(cores, ranks, binding)) {
    text += (text.empty() ? "" : " ") + (share.cpus.empty() ? "all" : cpu_list(share.cpus)) + "/" +
            std::to_string(share.cores);
  }
  return text;
}

std::string shares(int ranks, const Binding& binding) {
  return shares(ranks, binding, two_sockets());
}

TEST(ShareCores, EvenSharesAreDisjointNeighboursAndComplete) {
  EXPECT_EQ(shares(1, {}), "0-15/8");
  EXPECT_EQ(shares(2, {}), "0-3,8-11/4 4-7,12-15/4");
  EXPECT_EQ(shares(3, {}), "0,1,8,9/2 2-4,10-12/3 5-7,13-15/3");
  EXPECT_EQ(shares(8, {}).substr(0, 12), "0,8/1 1,9/1 ");
}

TEST(ShareCores, MoreRanksThanCoresAreNotBound) {
  EXPECT_EQ(shares(3, {}, plain_cores(2)), "all/1 all/1 all/1");
  EXPECT_TRUE(share_cores(plain_cores(1), 0).empty());
  EXPECT_EQ(shares(2, {}, {}), "all/1 all/1");
}

TEST(ShareCores, NoneLeavesRanksUnboundAndSharesTheThreads) {
  EXPECT_EQ(shares(2, {.to = BindTo::kNone}), "all/4 all/4");
  EXPECT_EQ(shares(16, {.to = BindTo::kNone}).substr(0, 5), "all/1");
}

TEST(ShareCores, OneCoreOrThreadForEachRank) {
  EXPECT_EQ(shares(3, {.to = BindTo::kCore}), "0,8/1 1,9/1 2,10/1");
  EXPECT_EQ(shares(3, {.to = BindTo::kHwthread}), "0/1 8/1 1/1");
  EXPECT_EQ(shares(2, {.to = BindTo::kCore, .width = 3}), "0-2,8-10/3 3-5,11-13/3");
  EXPECT_EQ(shares(2, {.to = BindTo::kHwthread, .width = 2}), "0,8/2 1,9/2");
}

TEST(ShareCores, TooFewCoresAreRefusedUnlessTheyMayBeShared) {
  try {
    (void)share_cores(plain_cores(2), 3, {.to = BindTo::kCore});
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("3 ranks with 1 core each do not fit into the 2"));
    EXPECT_THAT(error.what(), HasSubstr("--bind-to none"));
  }
  EXPECT_EQ(shares(3, {.to = BindTo::kCore, .overload = true}, plain_cores(2)), "0/1 1/1 0/1");
  EXPECT_THROW((void)share_cores(plain_cores(2), 1, {.to = BindTo::kCore, .width = 3}), UsageError);
  EXPECT_THROW(
      (void)share_cores(plain_cores(2), 1, {.to = BindTo::kCore, .width = 3, .overload = true}),
      UsageError);
}

TEST(ShareCores, SocketsAreFilledOneAfterTheOtherOrInTurn) {
  EXPECT_EQ(shares(4, {.to = BindTo::kSocket}), "0-3,8-11/2 0-3,8-11/2 4-7,12-15/2 4-7,12-15/2");
  EXPECT_EQ(shares(4, {.to = BindTo::kSocket, .scatter = true}),
            "0-3,8-11/2 4-7,12-15/2 0-3,8-11/2 4-7,12-15/2");
  EXPECT_EQ(shares(1, {.to = BindTo::kSocket}), "0-3,8-11/4");
  EXPECT_EQ(shares(2, {.to = BindTo::kNuma}), "0,1,8,9/2 4,5,12,13/2") << "far apart";
  EXPECT_EQ(shares(2, {.to = BindTo::kL3, .scatter = true}), "0,1,8,9/2 2,3,10,11/2");
  EXPECT_EQ(shares(12, {.to = BindTo::kSocket}).substr(0, 10), "0-3,8-11/1");
}

TEST(ShareCores, RestrictedProcessorsAreAllThereIs) {
  // As a scheduler's cpuset leaves them: one thread of core 1, both of core 6.
  const std::vector<Core> cores = {{{1}, 0, 0, 0}, {{6, 14}, 3, 3, 1}};
  EXPECT_EQ(shares(2, {}, cores), "1/1 6,14/1");
  EXPECT_EQ(shares(2, {.to = BindTo::kSocket}, cores), "1/1 6,14/1");
  EXPECT_EQ(shares(3, {.to = BindTo::kHwthread}, cores), "1/1 6/1 14/1");
}

TEST(ShareCores, OfCoresThatASchedulerConfinesNobodyToOnlyTheNumberIsShared) {
  const auto granted = [](int ranks, int processors, const Binding& binding = {}) {
    std::string text;
    for (const CpuShare& share : share_cores(two_sockets(), ranks, binding, processors)) {
      text += (share.cpus.empty() ? "all/" : "some/") + std::to_string(share.cores) + " ";
    }
    return text;
  };
  EXPECT_EQ(granted(1, 1), "all/1 ");
  EXPECT_EQ(granted(2, 4), "all/2 all/2 ");
  EXPECT_EQ(granted(3, 2), "all/1 all/1 all/1 ");
  EXPECT_EQ(granted(2, 4, {.to = BindTo::kNone}), "all/2 all/2 ");
  // All of them, as cores or as hardware threads, and what users ask for themselves.
  EXPECT_EQ(granted(2, 8), "some/4 some/4 ");
  EXPECT_EQ(granted(2, 16), "some/4 some/4 ");
  EXPECT_EQ(granted(2, 2, {.to = BindTo::kCore}), "some/1 some/1 ");
}

TEST(UsableCores, AreThoseOfThisProcess) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  ASSERT_EQ(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  std::set<int> cpus;
  for (const Core& core : usable_cores()) {
    for (const int cpu : core.cpus) {
      EXPECT_TRUE(cpus.insert(cpu).second) << "processor " << cpu << " lies in two cores";
      EXPECT_TRUE(CPU_ISSET(static_cast<std::size_t>(cpu), &allowed)) << cpu;
    }
  }
  EXPECT_EQ(cpus.size(), static_cast<std::size_t>(CPU_COUNT(&allowed)));
}

TEST(UsableCores, FollowTheAffinityThatTheProcessHas) {
  cpu_set_t before;
  CPU_ZERO(&before);
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  std::size_t last = 0;
  for (std::size_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &before)) last = cpu;
  }
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(last, &one);
  // The process has what all of its threads have, and earlier tests may have left some.
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Also of the thread that a sanitizer may have started here.
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      const pid_t thread = std::stoi(task.path().filename());
      if (sched_setaffinity(thread, sizeof one, &one) != 0) _exit(2);
    }
    const std::vector<Core> cores = usable_cores();
    const bool is_right =
        cores.size() == 1 && cores[0].cpus == std::vector<int>{static_cast<int>(last)};
    _exit(is_right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(CpuList, IsShort) {
  EXPECT_EQ(cpu_list({}), "");
  EXPECT_EQ(cpu_list({3}), "3");
  EXPECT_EQ(cpu_list({1, 0}), "0,1");
  EXPECT_EQ(cpu_list({9, 0, 1, 2, 8, 4}), "0-2,4,8,9");
}

}  // namespace
}  // namespace chainmail::launch
