// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which signals a job takes over from its caller, which have come lately, and a scope in which none
// comes.
//
// Dispositions are the process's; what a scope blocks is its thread's.

#pragma once

#include <signal.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace chainmail::launch {

/// Signals that announce something to programs, such as the end of their time. The launcher passes
/// them on to ranks; nothing else of the job may die of them.
inline constexpr int kPassedSignals[] = {SIGUSR1, SIGUSR2, SIGWINCH};

[[nodiscard]] bool is_passed_signal(int number) noexcept;

/// "SIGTERM", "signal 77".
[[nodiscard]] std::string signal_name(int number);

/// How a process ended: "exited with code 3", "was killed by signal 9 (Killed)".
[[nodiscard]] std::string end_text(bool by_signal, int value);

/// Also in a child that is about to exec: it and what it starts ignore them.
void ignore_passed_signals() noexcept;

/// What this process's caller has it ignore, of the signals that people and schedulers send to a
/// job: `trap '' USR1`, nohup (SIGHUP), a script's `&` (SIGINT, SIGQUIT). A program that is started
/// without the launcher would ignore them as well. Not SIGTERM, by which the launcher ends ranks.
/// Call before ignore_passed_signals().
[[nodiscard]] std::vector<int> signals_ignored_by_caller();

/// In this scope, and in threads that begin in it, all signals wait. The calling thread is a
/// process's only one, or all others block signals, too.
class SignalsBlocked {
 public:
  SignalsBlocked() noexcept;
  ~SignalsBlocked();
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_{};
};

/// What sends a signal to all processes of a job (scancel, a scheduler's warning) reaches launcher
/// and agents, who pass it on to each other: within a second the same number is the same signal.
/// One thread.
class RecentSignals {
 public:
  void add(int number) { when_[number] = Clock::now(); }
  void clear() noexcept { when_.clear(); }
  /// Within the last second.
  [[nodiscard]] bool has(int number) const {
    const auto found = when_.find(number);
    return found != when_.end() && Clock::now() - found->second < kOneSignal;
  }
  /// However long ago.
  [[nodiscard]] bool has_ever(int number) const { return when_.contains(number); }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kOneSignal{1000};

  std::map<int, Clock::time_point> when_;
};

}  // namespace chainmail::launch
