// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/state/root_cause.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/process/signals.h"

namespace chainmail::launch {
std::string describe(const RankExit& exit) {
  const std::string end = end_text(exit.by_signal, static_cast<int>(exit.value));
  if (!exit.by_signal) return end;
  if (exit.out_of_memory) return "was killed by signal 9 (out-of-memory killer): " + exit.detail;
  return end + (exit.detail.empty() ? "" : ": " + exit.detail);
}

int code_of(const RankExit& exit) noexcept {
  const int value = static_cast<int>(exit.value);
  return exit.by_signal ? exit_code::kSignalBase + value : value;
}

void RootCause::add(Blame blame, Time now) {
  const bool is_another = blame_ && now - blamed_at_ > kOneFailure;
  if (is_victim(blame.rank) && !is_another) return;
  if (!blame_ || is_another) blamed_at_ = now;
  is_victim_.assign(std::max<std::size_t>(is_victim_.size(), std::size_t{blame.rank} + 1), true);
  is_victim_[blame.rank] = false;
  if (!blame_ || is_another) blame_ = std::move(blame);
}

void RootCause::add(Failure failure) {
  if (!is_open_) return;
  if (!failure_ || weight_of(failure) > weight_of(*failure_)) failure_ = std::move(failure);
}

// How much a failure explains. SIGABRT is what an uncaught PeerError ends in, so it weighs no more
// than an exit code; any other signal came from outside or from a fault of the rank itself. A code
// stands for a signal where a shell ran the program; above those numbers it does not (return -1).
int RootCause::weight_of(const Failure& failure) const {
  if (!failure.rank) return 2;
  if (is_victim(*failure.rank)) return 0;
  const int signal_number = failure.exit_code - exit_code::kSignalBase;
  return signal_number > 0 && signal_number < NSIG && signal_number != SIGABRT ? 2 : 1;
}

}  // namespace chainmail::launch
