// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The process that serves a store stays for those who leave after it: with its last group over any
// clone of the store, not after a failure, and a second at most.

#include "plugin/c10d/store/served_groups.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "plugin/c10d/store/store_link.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Keys = std::vector<std::string>;

c10::intrusive_ptr<c10d::TCPStore> serve() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

TEST(ServedGroups, OnlyTheLastOverAnyCloneWaits) {
  const auto store = serve();
  const auto groups = ServedGroups::of(*store);
  ASSERT_NE(groups, nullptr);
  EXPECT_EQ(ServedGroups::of(*store->clone()), groups);
  EXPECT_NE(ServedGroups::of(*serve()), groups);
  for (int round = 0; round < 2; ++round) {
    groups->enter();
    groups->enter();
    groups->enter();
    EXPECT_EQ(groups->leave("one", false), Keys{});
    EXPECT_EQ(groups->leave("", false), Keys{});
    EXPECT_EQ(groups->leave("two", false), (Keys{"one", "two"}));
  }
}

TEST(ServedGroups, NobodyWaitsAfterAFailure) {
  const auto store = serve();
  const auto groups = ServedGroups::of(*store);
  groups->enter();
  groups->enter();
  EXPECT_EQ(groups->leave("failed", true), Keys{});
  EXPECT_EQ(groups->leave("healthy", false), Keys{});
  groups->enter();
  EXPECT_EQ(groups->leave("next", false), Keys{"next"});
}

TEST(ServedGroups, WhoDoesNotServeTheStoreDoesNotWait) {
  EXPECT_EQ(ServedGroups::of(c10d::HashStore()), nullptr);
  const auto store = serve();
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 3; fd < 1024; ++fd) ::close(fd);  // the server's socket among them
    const auto groups = ServedGroups::of(*store);
    groups->enter();
    ::_exit(groups->leave("key", false).empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// How long a leave takes whose key goes after `others_leave_after`.
milliseconds time_of_leave(milliseconds others_leave_after, bool has_failed) {
  const auto store = serve();
  const auto link = StoreLink::to(store);
  store->set("left", std::vector<std::uint8_t>{1});
  link->enter();
  std::thread others([&] {
    std::this_thread::sleep_for(others_leave_after);
    store->clone()->deleteKey("left");
  });
  const auto begin = Clock::now();
  link->leave("left", has_failed);
  const auto time = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
  others.join();
  return time;
}

TEST(ServedGroups, ALeaveLastsUntilTheOthersHaveLeftOrASecond) {
  const auto until_they_left = time_of_leave(milliseconds{200}, false);
  EXPECT_GE(until_they_left, milliseconds{150});
  EXPECT_LT(until_they_left, milliseconds{1000});
  const auto a_second = time_of_leave(milliseconds{4000}, false);
  EXPECT_GE(a_second, milliseconds{1000});
  EXPECT_LT(a_second, milliseconds{3000});
  EXPECT_LT(time_of_leave(milliseconds{1500}, true), milliseconds{900});
}

}  // namespace
}  // namespace chainmail::internal
