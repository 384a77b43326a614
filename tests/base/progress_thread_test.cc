// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/threads/progress_thread.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <future>
#include <vector>

#include "base/threads/thread.h"
#include "tests/support/patience.h"

namespace chainmail::internal {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::duration;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// A thread without work ends after two seconds and some naps.
constexpr milliseconds kNotEnded{1500};

/// The processor time and the sleeps of the calling thread.
struct Effort {
  duration<double> processor_time{};
  long sleeps = 0;

  static Effort so_far() {
    timespec used{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    return {std::chrono::seconds{used.tv_sec} + std::chrono::nanoseconds{used.tv_nsec},
            usage.ru_nvcsw};
  }
  Effort operator-(const Effort& before) const {
    return {processor_time - before.processor_time, sleeps - before.sleeps};
  }
};

/// Counts what it is asked for; its thread does so where nobody else does.
class Counter {
 public:
  explicit Counter(milliseconds nap = ProgressThread::kNap) : thread_(nap) {}
  ~Counter() { stop(); }

  void stop() {
    std::thread thread;
    {
      const std::lock_guard lock(mutex_);
      thread = thread_.stop();
    }
    join_or_let_go(std::move(thread));
  }

  /// How long the thread takes until it has begun.
  Clock::duration ask(bool is_urgent) {
    const auto begin = Clock::now();
    std::unique_lock lock(mutex_);
    ++asked_;
    if (!thread_.wake(is_urgent)) {
      ++starts_;
      thread_.start([this] { work(); });
    }
    done_.wait(lock, [this] { return asked_ == 0; });
    return done_at_ - begin;
  }

  int starts() const { return starts_; }

  /// Of the first thread, from its last work until it ended by itself.
  std::future<Effort> idle_effort() { return idle_effort_.get_future(); }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (!thread_.is_stopped()) {
      if (asked_ > 0) {
        done_at_ = Clock::now();
        --asked_;
        done_.notify_one();
        last_work_ = Effort::so_far();
      } else if (!thread_.rest(
                     lock, [this] { return asked_ > 0; }, [] { return 0; }, [] { return false; })) {
        if (starts_ == 1) idle_effort_.set_value(Effort::so_far() - last_work_);
        return;
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable done_;
  ProgressThread thread_;
  int asked_ = 0;
  int starts_ = 0;
  Clock::time_point done_at_;
  Effort last_work_;
  std::promise<Effort> idle_effort_;
};

microseconds median(std::vector<Clock::duration> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return std::chrono::ceil<microseconds>(times[times.size() / 2]);
}

// With naps so long that a busy machine, where whoever is woken may wait for some milliseconds
// until a processor is free, changes nothing of who is called from one and who waits for its end.
TEST(ProgressThread, BeginsAtOnceWhatIsUrgentAndTheRestWithinANap) {
  constexpr milliseconds kLongNap{400};
  Counter counter(kLongNap);
  std::vector<Clock::duration> urgent;
  std::vector<Clock::duration> any;
  counter.ask(true);
  for (int i = 0; i < 9; ++i) {
    // The thread has just been called, so its next nap has just begun.
    urgent.push_back(counter.ask(true));
    any.push_back(counter.ask(false));
  }
  std::cout << "begun after (median), with naps of 400000 us: urgent " << median(urgent).count()
            << " us, not urgent " << median(any).count() << " us\n";
  EXPECT_LT(median(urgent), kLongNap / 2) << "it napped to the end";
  EXPECT_GT(median(any), kLongNap / 2) << "it was woken, which costs the caller";
  EXPECT_LT(median(any), 2 * kLongNap) << "it napped once more";
  EXPECT_EQ(counter.starts(), 1);
}

// The best of many, which a busy machine does not blur: with longer naps none would begin so soon.
TEST(ProgressThread, NapsForAMillisecond) {
  Counter counter;
  counter.ask(true);
  std::vector<Clock::duration> begun;
  for (int i = 0; i < 101; ++i) begun.push_back(counter.ask(false));
  EXPECT_LT(*std::min_element(begun.begin(), begun.end()), milliseconds{10});
}

TEST(ProgressThread, IsWokenFromALongSleep) {
  Counter counter;
  std::vector<Clock::duration> called;
  counter.ask(false);
  for (int i = 0; i < 5; ++i) {
    // Now it sleeps until it is called, and has not ended yet.
    std::this_thread::sleep_for(std::min<duration<double>>(patient(milliseconds{400}), kNotEnded));
    called.push_back(counter.ask(false));
  }
  EXPECT_LT(median(called), milliseconds{400}) << "it would go on sleeping for longer";
}

// In what a busy machine does not change: the thread's sleeps, and its own processor time.
TEST(ProgressThread, UsesNoProcessorWithoutWorkAndEnds) {
  Counter counter;
  counter.ask(true);
  auto idle = counter.idle_effort();
  ASSERT_EQ(idle.wait_for(std::chrono::seconds{60}), std::future_status::ready) << "never ended";
  const Effort effort = idle.get();
  std::cout << "idle until its end: " << effort.sleeps << " sleeps, "
            << 1000 * effort.processor_time.count() << " ms of the processor\n";
  EXPECT_LE(effort.sleeps, 130);  // 100 naps, one long sleep, and what takes the lock meanwhile
  EXPECT_LT(effort.processor_time, patient(milliseconds{20})) << "of more than two seconds";
  counter.ask(false);
  EXPECT_EQ(counter.starts(), 2);
  counter.stop();
  counter.stop();
}

TEST(ProgressThread, IsNotStartedAgainOnceItWasStopped) {
  ProgressThread thread;
  EXPECT_FALSE(thread.wake(true));
  EXPECT_FALSE(thread.stop().joinable());
  EXPECT_TRUE(thread.wake(true)) << "there is nothing to start";
}

}  // namespace
}  // namespace chainmail::internal
