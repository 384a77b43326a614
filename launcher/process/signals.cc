// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/process/signals.h"

#include <string.h>

#include <algorithm>
#include <iterator>

namespace chainmail::launch {
namespace {

bool is_ignored(int number) noexcept {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

bool is_passed_signal(int number) noexcept {
  return std::find(std::begin(kPassedSignals), std::end(kPassedSignals), number) !=
         std::end(kPassedSignals);
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? "signal " + std::to_string(number) : std::string("SIG") + name;
}

std::string end_text(bool by_signal, int value) {
  if (!by_signal) return "exited with code " + std::to_string(value);
  return "was killed by signal " + std::to_string(value) + " (" + strsignal(value) + ")";
}

void ignore_passed_signals() noexcept {
  for (const int number : kPassedSignals) signal(number, SIG_IGN);
}

std::vector<int> signals_ignored_by_caller() {
  std::vector<int> ignored(std::begin(kPassedSignals), std::end(kPassedSignals));
  ignored.insert(ignored.end(), {SIGHUP, SIGINT, SIGQUIT});
  std::erase_if(ignored, [](int number) { return !is_ignored(number); });
  return ignored;
}

SignalsBlocked::SignalsBlocked() noexcept {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before_);
}

SignalsBlocked::~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

}  // namespace chainmail::launch
