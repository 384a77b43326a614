// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The process that serves a store stays for those who leave after it: with its last group over any
// clone of the store, not after a failure, and a second at most.

#include "plugin/c10d/store/store_users.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "plugin/c10d/store/store_link.h"
#include "tests/support/patience.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Keys = std::vector<std::string>;

c10::intrusive_ptr<c10d::TCPStore> serve() {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

TEST(StoreUsers, OnlyTheLastOverAnyCloneWaits) {
  const auto store = serve();
  const auto groups = StoreUsers::of(*store);
  ASSERT_NE(groups, nullptr);
  EXPECT_EQ(StoreUsers::of(*store->clone()), groups);
  EXPECT_NE(StoreUsers::of(*serve()), groups);
  for (int round = 0; round < 2; ++round) {
    groups->enter();
    groups->enter();
    groups->enter();
    EXPECT_EQ(groups->leave("one", false), Keys{});
    EXPECT_EQ(groups->leave("", false), Keys{});
    EXPECT_EQ(groups->leave("two", false), (Keys{"one", "two"}));
  }
}

TEST(StoreUsers, NobodyWaitsAfterAFailure) {
  const auto store = serve();
  const auto groups = StoreUsers::of(*store);
  groups->enter();
  groups->enter();
  EXPECT_EQ(groups->leave("failed", true), Keys{});
  EXPECT_EQ(groups->leave("healthy", false), Keys{});
  groups->enter();
  EXPECT_EQ(groups->leave("next", false), Keys{"next"});
}

TEST(StoreUsers, WhoDoesNotServeTheStoreDoesNotWait) {
  EXPECT_EQ(StoreUsers::of(c10d::HashStore()), nullptr);
  const auto store = serve();
  const pid_t child = ::fork();
  if (child == 0) {
    for (int fd = 3; fd < 1024; ++fd) ::close(fd);  // the server's socket among them
    const auto groups = StoreUsers::of(*store);
    groups->enter();
    ::_exit(groups->leave("key", false).empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

struct Leave {
  std::chrono::duration<double> took;
  bool others_had_left;
};

/// A leave whose key goes after a moment or, if the others stay, when the leave is over.
Leave leave(bool others_stay, bool has_failed) {
  const auto store = serve();
  const auto link = StoreLink::to(store);
  store->set("left", std::vector<std::uint8_t>{1});
  link->enter();
  std::promise<void> is_over;
  std::thread others([&, over = is_over.get_future()] {
    over.wait_for(others_stay ? milliseconds{60'000} : milliseconds{50});
    store->clone()->deleteKey("left");
  });
  const Stopwatch watch;
  link->leave("left", has_failed);
  const Leave result{watch.elapsed(), !store->check({"left"})};
  is_over.set_value();
  others.join();
  return result;
}

TEST(StoreUsers, ALeaveLastsUntilTheOthersHaveLeftOrASecond) {
  // A busy machine may hold the others up for that second.
  bool have_left = false;
  for (int i = 0; i < 5 && !have_left; ++i) have_left = leave(false, false).others_had_left;
  EXPECT_TRUE(have_left);
  const Leave a_second = leave(true, false);
  EXPECT_FALSE(a_second.others_had_left);
  EXPECT_GE(a_second.took, seconds{1});
  EXPECT_LT(a_second.took, patient(seconds{3}));
}

TEST(StoreUsers, AfterAFailureALeaveLastsNoTime) {
  // A busy machine may hold one up.
  auto shortest = std::chrono::duration<double>::max();
  for (int i = 0; i < 5; ++i) shortest = std::min(shortest, leave(true, true).took);
  EXPECT_LT(shortest, milliseconds{900}) << "a healthy one lasts a second";
}

}  // namespace
}  // namespace chainmail::internal
