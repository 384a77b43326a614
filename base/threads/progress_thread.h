// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The thread that makes progress where nobody waits for it: of a queue of operations, of transfers.
//
// Why it does not sleep until there is work: waking a thread costs its caller 10 to 20 us, a small
// operation 1 us, and mostly somebody waits for that soon and carries it out. So while the owner is
// in use the thread naps and looks every millisecond; after a tenth of a second without work it
// sleeps until it is called, and after two more it ends. The next call makes another.
//
// All members are guarded by the owner's mutex, which the caller holds and nap() and rest() let go
// of while they wait.

#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace chainmail::internal {

class ProgressThread {
 public:
  using Lock = std::unique_lock<std::mutex>;
  /// How soon work begins that nobody waits for, while the owner is in use.
  static constexpr std::chrono::milliseconds kNap{1};

  /// `nap` is how long the thread sleeps before it looks again; other lengths are for tests.
  explicit ProgressThread(std::chrono::milliseconds nap = kNap) : nap_(nap) {}

  /// False when there is no thread and start() is to make one. Wakes it from a long sleep, or, when
  /// the work is urgent, from a nap. Does nothing after stop().
  bool wake(bool is_urgent) {
    if (is_stopped_) return true;
    if (!thread_.joinable()) return false;
    if (is_urgent || is_dormant_) called_.notify_one();
    return true;
  }

  /// `body` loops until is_stopped() or rest() is false. Throws std::system_error.
  template <typename Body>
  void start(Body body) {
    thread_ = std::thread(std::move(body));
  }

  /// In the thread: a nap, or until `has_call()`.
  template <typename HasCall>
  void nap(Lock& lock, const HasCall& has_call) {
    called_.wait_for(lock, nap_, [&] { return is_stopped_ || has_call(); });
  }

  /// In the thread, without work: waits until `has_work()`, or until `uses()` has changed, which
  /// counts how often others have made progress. False when nobody has called for long: the thread
  /// then ends, unless `is_needed()`.
  template <typename HasWork, typename Uses, typename IsNeeded>
  bool rest(Lock& lock, const HasWork& has_work, const Uses& uses, const IsNeeded& is_needed) {
    const auto before = uses();
    for (int nap = 0; nap < kNapsUntilDormant; ++nap) {
      called_.wait_for(lock, nap_);
      if (is_stopped_ || has_work() || uses() != before) return true;
    }
    is_dormant_ = true;
    const bool is_called =
        called_.wait_for(lock, kDormantTime, [&] { return is_stopped_ || has_work(); });
    is_dormant_ = false;
    if (is_called || is_needed()) return true;
    forget();
    return false;
  }

  bool is_stopped() const noexcept { return is_stopped_; }

  /// Has the thread end, and no other begin; the caller joins what is returned, without the lock.
  [[nodiscard]] std::thread stop() noexcept {
    is_stopped_ = true;
    called_.notify_all();
    return std::move(thread_);
  }

  /// Lets go of the thread: it ends by itself, or, in a forked child, does not exist.
  void forget() noexcept {
    if (thread_.joinable()) thread_.detach();
  }

 private:
  static constexpr int kNapsUntilDormant = 100;
  static constexpr std::chrono::seconds kDormantTime{2};

  std::chrono::milliseconds nap_;
  std::condition_variable called_;
  std::thread thread_;
  bool is_dormant_ = false;
  bool is_stopped_ = false;
};

}  // namespace chainmail::internal
