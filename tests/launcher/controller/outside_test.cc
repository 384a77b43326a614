// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who looks at a job from outside, and what he may ask for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "launcher/controller/outside/observed_job.h"
#include "tests/support/patience.h"

namespace chainmail::launch {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;

StopRequest awaited(const RequestWatch& watch, StopRequest wanted) {
  const Stopwatch watch_time;
  const auto limit = patient(std::chrono::seconds(10));
  while (watch.latest() != wanted && watch_time.elapsed() < limit) std::this_thread::sleep_for(1ms);
  return watch.latest();
}

TEST(RequestWatch, AsksAgainAndKeepsTheMost) {
  const auto answers = std::make_shared<std::atomic<int>>(0);
  const RequestWatch watch(
      [answers] {
        constexpr StopRequest kAnswers[] = {StopRequest::kNone, StopRequest::kStop,
                                            StopRequest::kNone, StopRequest::kNow};
        return kAnswers[std::min((*answers)++, 3)];
      },
      1ms);
  EXPECT_EQ(awaited(watch, StopRequest::kNow), StopRequest::kNow);
}

TEST(RequestWatch, WhatThrowsIsAskedAgain) {
  const auto calls = std::make_shared<std::atomic<int>>(0);
  const RequestWatch watch(
      [calls]() -> StopRequest {
        if ((*calls)++ == 0) throw std::runtime_error("not readable");
        return StopRequest::kStop;
      },
      1ms);
  EXPECT_EQ(awaited(watch, StopRequest::kStop), StopRequest::kStop);
}

TEST(RequestWatch, NobodyWaitsForAFileSystemThatHangs) {
  struct Hang {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_in = false;
    bool may_go = false;
    bool has_gone = false;
  };
  const auto hang = std::make_shared<Hang>();
  const auto ask = [hang] {
    std::unique_lock lock(hang->mutex);
    hang->is_in = true;
    hang->changed.notify_all();
    hang->changed.wait(lock, [&] { return hang->may_go; });
    hang->has_gone = true;
    hang->changed.notify_all();
    return StopRequest::kStop;
  };
  {
    const RequestWatch watch(ask);
    std::unique_lock lock(hang->mutex);
    hang->changed.wait(lock, [&] { return hang->is_in; });
    lock.unlock();
    EXPECT_EQ(watch.latest(), StopRequest::kNone);
  }
  // The thread ends by itself.
  std::unique_lock lock(hang->mutex);
  hang->may_go = true;
  hang->changed.notify_all();
  EXPECT_TRUE(hang->changed.wait_for(lock, patient(std::chrono::seconds(10)),
                                     [&] { return hang->has_gone; }));
}

TEST(ObservedJob, ChangesAreToldOnce) {
  std::vector<std::string> told;
  JobObserver observer;
  observer.on_phase = [&told](JobPhase phase, const std::string& reason) {
    told.push_back(std::to_string(static_cast<int>(phase)) + reason);
  };
  ObservedJob job(observer);
  job.enter(JobPhase::kPreparing);
  job.enter(JobPhase::kPreparing);
  job.enter(JobPhase::kQueued, "n1");
  job.enter(JobPhase::kQueued, "n1, n2");
  job.enter(JobPhase::kPreparing);
  job.enter(JobPhase::kStopping, "Ctrl-C");
  job.enter(JobPhase::kRunning);
  const std::string preparing = std::to_string(static_cast<int>(JobPhase::kPreparing));
  const std::string queued = std::to_string(static_cast<int>(JobPhase::kQueued));
  const std::string stopping = std::to_string(static_cast<int>(JobPhase::kStopping));
  EXPECT_THAT(told, ElementsAre(preparing, queued + "n1", queued + "n1, n2", preparing,
                                stopping + "Ctrl-C"));
}

TEST(ObservedJob, ARequestIsNewOnce) {
  StopRequest asked = StopRequest::kNone;
  JobObserver observer;
  observer.on_beat = [&asked] { return asked; };
  ObservedJob job(observer);
  EXPECT_EQ(job.next_request(), StopRequest::kNone);
  asked = StopRequest::kStop;
  EXPECT_EQ(job.next_request(), StopRequest::kStop);
  EXPECT_EQ(job.next_request(), StopRequest::kNone);
  asked = StopRequest::kNow;
  EXPECT_EQ(job.next_request(), StopRequest::kNow);
  asked = StopRequest::kStop;
  EXPECT_EQ(job.next_request(), StopRequest::kNone);
  EXPECT_EQ(ObservedJob({}).next_request(), StopRequest::kNone) << "nobody asks";
}

}  // namespace
}  // namespace chainmail::launch
