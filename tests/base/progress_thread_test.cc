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

/// How long a thread takes to begin that sleeps on a condition and nothing else.
class Sleeper {
 public:
  Sleeper() : thread_([this] { work(); }) {}
  ~Sleeper() {
    ask();
    thread_.join();
  }

  Clock::duration ask() {
    const auto begin = Clock::now();
    std::unique_lock lock(mutex_);
    is_asked_ = true;
    asked_.notify_one();
    done_.wait(lock, [this] { return !is_asked_; });
    return done_at_ - begin;
  }
  void end() { is_over_ = true; }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (!is_over_) {
      asked_.wait(lock, [this] { return is_asked_; });
      done_at_ = Clock::now();
      is_asked_ = false;
      done_.notify_one();
    }
  }

  std::mutex mutex_;
  std::condition_variable asked_;
  std::condition_variable done_;
  bool is_asked_ = false;
  std::atomic<bool> is_over_{false};
  Clock::time_point done_at_;
  std::thread thread_;
};

microseconds median(std::vector<Clock::duration> times) {
  std::nth_element(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2),
                   times.end());
  return std::chrono::ceil<microseconds>(times[times.size() / 2]);
}

// In turns, so that a machine that is busy for a while is so for all four. There a sleep ends late
// by milliseconds, while who is called by a thread that then waits begins at once.
TEST(ProgressThread, BeginsAtOnceWhatIsUrgentAndTheRestWithinANap) {
  Counter counter;
  Sleeper sleeper;
  std::vector<Clock::duration> urgent;
  std::vector<Clock::duration> any;
  std::vector<Clock::duration> plain;
  std::vector<Clock::duration> naps;
  counter.ask(true);
  for (int i = 0; i < 201; ++i) {
    urgent.push_back(counter.ask(true));
    plain.push_back(sleeper.ask());
    any.push_back(counter.ask(false));
    const auto begin = Clock::now();
    std::this_thread::sleep_for(ProgressThread::kNap);
    naps.push_back(Clock::now() - begin);
  }
  sleeper.end();
  std::cout << "begun after (median): urgent " << median(urgent).count() << " us, not urgent "
            << median(any).count() << " us, a plain condition " << median(plain).count()
            << " us, a nap takes " << median(naps).count() << " us\n";
  EXPECT_LT(median(urgent), 3 * median(plain) + microseconds{50});
  EXPECT_LT(median(any), median(naps) + 3 * median(plain) + microseconds{200});
  EXPECT_EQ(counter.starts(), 1);
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
