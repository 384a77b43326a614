// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What groups leave behind when they go, and what they cost while they rest.

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/ops/support/dev_shm.h"
#include "tests/ops/support/groups.h"

namespace chainmail::ops {
namespace {

using test::GroupMaker;
using test::on;
using test::TransportKind;

std::size_t entries_of(const char* directory) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

std::size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::size_t total = 0;
  std::size_t resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

std::size_t mappings() {
  std::ifstream file("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find("memfd") != line.npos;
  return count;
}

struct Footprint {
  std::size_t descriptors = entries_of("/proc/self/fd");
  std::size_t threads = entries_of("/proc/self/task");
  std::size_t shared_files = test::files_in_dev_shm();
  std::size_t shared_mappings = mappings();
  std::size_t resident = resident_bytes();
};

/// Threads of the groups that end on their own need a moment.
template <typename Condition>
bool comes_true(std::chrono::seconds limit, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
  }
  return true;
}

/// Uses what a group has: the queue's thread, the watchdog, local and cross Comms, both engines.
void use(int rank, Group& group) {
  const int size = group.size();
  std::vector<float> sum(100, 1);
  const auto operation = group.submit(on(sum));
  std::vector<float> mine(10, static_cast<float>(rank));
  std::vector<float> theirs(10);
  Collective send = on(mine, OpKind::kSend);
  Collective receive = on(theirs, OpKind::kRecv);
  send.root = (rank + 1) % size;
  receive.root = rank == 0 ? kAnyRank : rank - 1;
  const auto in = group.submit(std::move(receive));
  const auto out = group.submit(std::move(send));
  operation->wait();
  in->wait();
  out->wait();
  ASSERT_EQ(sum[99], static_cast<float>(size));
  ASSERT_EQ(theirs[9], static_cast<float>((rank + size - 1) % size));
}

class GroupLeaks : public testing::TestWithParam<TransportKind> {
 protected:
  static void make_and_destroy(int groups) {
    for (int i = 0; i < groups; ++i) {
      GroupOptions options;
      options.name = "group" + std::to_string(i);
      options.timeout = std::chrono::seconds{60};
      GroupMaker maker(i % 4 == 0 ? std::vector<int>{2, 1} : std::vector<int>{2}, GetParam(),
                       options);
      maker.run_ok([](int rank, Group& group) { use(rank, group); });
    }
  }
};

TEST_P(GroupLeaks, AThousandGroupsLeaveNothingBehind) {
  constexpr std::size_t kAllowed = std::size_t{4} << 20;
  make_and_destroy(100);  // allocators and thread stacks find their size
  const Footprint before;
  make_and_destroy(1000);
  EXPECT_TRUE(
      comes_true(std::chrono::seconds{5}, [&] { return Footprint{}.threads <= before.threads; }))
      << Footprint{}.threads << " threads, " << before.threads << " before";
  const Footprint after;
  EXPECT_EQ(after.descriptors, before.descriptors);
  EXPECT_EQ(after.shared_files, before.shared_files);
  EXPECT_EQ(after.shared_mappings, before.shared_mappings);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep freed memory
  EXPECT_LT(after.resident, before.resident + kAllowed);
  EXPECT_GT(after.resident + kAllowed, before.resident);
#else
  static_cast<void>(kAllowed);
#endif
}

TEST_P(GroupLeaks, GroupsAtRestHaveNoThreads) {
  const std::size_t threads_before = Footprint{}.threads;
  constexpr int kGroups = 50;
  std::vector<std::shared_ptr<Group>> kept;
  for (int i = 0; i < kGroups; ++i) {
    GroupOptions options;
    options.name = "group" + std::to_string(i);
    options.timeout = std::chrono::seconds{60};
    GroupMaker maker({2}, GetParam(), options);
    std::vector<std::shared_ptr<Group>> ends(2);
    test::run_ranks_ok(2, [&](int rank) {
      const auto group = maker.join(rank);
      use(rank, *group);
      ends[static_cast<std::size_t>(rank)] = group;
    });
    kept.insert(kept.end(), ends.begin(), ends.end());
  }
  EXPECT_TRUE(
      comes_true(std::chrono::seconds{20}, [&] { return Footprint{}.threads <= threads_before; }))
      << Footprint{}.threads << " threads, " << threads_before << " before";
  // They come back to work.
  test::run_ranks_ok(2, [&](int rank) {
    for (std::size_t i = static_cast<std::size_t>(rank); i < kept.size(); i += 2) {
      use(rank, *kept[i]);
    }
  });
  test::run_ranks_ok(2, [&](int rank) {
    for (std::size_t i = static_cast<std::size_t>(rank); i < kept.size(); i += 2) {
      kept[i]->shutdown();
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Carriers, GroupLeaks,
                         testing::Values(TransportKind::kReal, TransportKind::kTcpEverywhere,
                                         TransportKind::kEncrypted, TransportKind::kMpi),
                         [](const auto& each) { return test::to_string(each.param); });

}  // namespace
}  // namespace chainmail::ops
