// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// RendezvousNews that goes away at odd moments.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "base/error.h"
#include "ops/core/failure/failure_state.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/failure/rendezvous_news.h"

namespace chainmail::ops {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// The exit code of a child; -1 for one that had to be killed after `limit`.
int wait_for_child(pid_t child, milliseconds limit) {
  const auto end = Clock::now() + limit;
  for (;;) {
    int status = 0;
    if (::waitpid(child, &status, WNOHANG) == child) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (Clock::now() > end) break;
    std::this_thread::sleep_for(milliseconds{5});
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  return -1;
}

TEST(RendezvousNewsTest, AForkedChildDestroysItsCopyAtOnce) {
  // With a group the watching thread waits for the next look, without one for the first group.
  for (const bool has_group : {true, false}) {
    auto news = std::make_unique<RendezvousNews>(std::make_shared<LocalRendezvous>());
    const auto state = std::make_shared<FailureState>();
    news->subscribe("group", {}, state);
    std::this_thread::sleep_for(milliseconds{50});
    if (!has_group) {
      news->unsubscribe("group");
      std::this_thread::sleep_for(milliseconds{300});
    }
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      news->unsubscribe("group");
      news.reset();
      ::_exit(0);
    }
    EXPECT_EQ(wait_for_child(child, seconds{5}), 0) << (has_group ? "one group" : "no group");

    // The parent's own goes on.
    news->subscribe("group", {}, state);
    news->announce("group", std::make_exception_ptr(PeerError("it is over")));
    for (int i = 0; i < 1000 && !state->has_failed(); ++i) {
      std::this_thread::sleep_for(milliseconds{5});
    }
    EXPECT_TRUE(state->has_failed());
  }
}

TEST(RendezvousNewsTest, AListenerMayDropTheLastOwner) {
  const auto store = std::make_shared<LocalRendezvous>();
  const auto state = std::make_shared<FailureState>();
  auto news = std::make_shared<RendezvousNews>(store);
  news->announce("group", std::make_exception_ptr(PeerError("it is over")));
  const std::weak_ptr<RendezvousNews> watched = news;
  std::promise<void> dropped;
  std::promise<void> released;
  state->on_failure([&dropped, owner = news,
                     go = released.get_future().share()](const std::exception_ptr&) mutable {
    go.wait();
    owner.reset();
    dropped.set_value();
  });
  news->subscribe("group", {}, state);
  news.reset();
  released.set_value();
  ASSERT_EQ(dropped.get_future().wait_for(seconds{5}), std::future_status::ready);
  EXPECT_TRUE(watched.expired());
}

}  // namespace
}  // namespace chainmail::ops
