// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A terminate handler runs in the thread that failed, as ordinary code, but in a process whose
// other threads and locks are in any state: an alarm bounds all that it does. A signal handler may
// only call what signal-safety(7) lists, so its text is made beforehand.

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <mutex>
#include <string>
#include <string_view>

#include <unistd.h>

#include <chainmail/terminate.h>

#include "base/error.h"
#include "plugin/train/communicator_impl.h"

namespace chainmail {

namespace {

constexpr unsigned kGraceSeconds = 5;

struct FatalSignal {
  int number;
  std::string_view text;
};
constexpr std::array<FatalSignal, 5> kFatalSignals = {{
    {SIGSEGV, "SIGSEGV (invalid memory access)"},
    {SIGBUS, "SIGBUS (memory that is not there)"},
    {SIGFPE, "SIGFPE (arithmetic error)"},
    {SIGILL, "SIGILL (invalid instruction)"},
    {SIGABRT, "SIGABRT (abort() was called)"},
}};

// What the handlers read. Never freed: a rank may fail while its statics are destroyed.
struct Hook {
  std::mutex mutex;  ///< of `communicator`
  std::weak_ptr<Communicator> communicator;
  std::array<char, 320> who = {};  ///< "chainmail: rank 1 on node2: "; set once, before handlers
  std::array<struct sigaction, kFatalSignals.size()> previous = {};
};

Hook& hook() {
  static Hook* const instance = new Hook;  // NOLINT: on purpose, see above
  return *instance;
}

void write_all(std::string_view text) noexcept {
  while (!text.empty()) {
    const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
    if (written <= 0) {
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

std::string describe_failure() {
  if (const std::exception_ptr failure = std::current_exception()) {
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& error) {
      return std::string("uncaught exception: ") + error.what();
    } catch (...) {
      return "uncaught exception that is no std::exception";
    }
  }
  return "std::terminate was called";
}

[[noreturn]] void on_terminate() noexcept {
  static std::atomic_flag is_first = ATOMIC_FLAG_INIT;
  while (is_first.test_and_set()) {
    ::pause();  // another thread is ending the process
  }
  std::signal(SIGALRM, SIG_DFL);
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  pthread_sigmask(SIG_UNBLOCK, &alarm_only, nullptr);
  ::alarm(kGraceSeconds);
  try {
    const std::string what = describe_failure();
    write_all(std::string(hook().who.data()) + what + "\n");
    std::fflush(stdout);
    std::shared_ptr<Communicator> communicator;
    {
      const std::lock_guard lock(hook().mutex);
      communicator = hook().communicator.lock();
    }
    if (communicator) {
      communicator->abort(what);
    }
  } catch (...) {  // the process ends whatever happens
  }
  ::_exit(kTerminatedExitCode);
}

void on_signal(int number, siginfo_t* /*info*/, void* /*context*/) {
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    if (kFatalSignals[i].number == number) {
      write_all(hook().who.data());
      write_all(kFatalSignals[i].text);
      write_all("\n");
      ::sigaction(number, &hook().previous[i], nullptr);
    }
  }
  ::raise(number);
}

// A stack that has overflowed cannot run a handler; only this thread gets another one.
void use_own_stack() {
  static std::array<char, 64 * 1024> memory;
  stack_t current = {};
  if (::sigaltstack(nullptr, &current) == 0 && (current.ss_flags & SS_DISABLE) != 0) {
    stack_t own = {};
    own.ss_sp = memory.data();
    own.ss_size = memory.size();
    ::sigaltstack(&own, nullptr);
  }
}

void install_handlers() {
  use_own_stack();
  std::set_terminate(on_terminate);
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    struct sigaction action = {};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    if (::sigaction(kFatalSignals[i].number, &action, &hook().previous[i]) != 0) {
      throw system_error("cannot handle " + std::string(kFatalSignals[i].text));
    }
  }
}

}  // namespace

void add_except_hook(const std::shared_ptr<Communicator>& communicator) {
  if (!communicator) {
    throw InvalidArgument("add_except_hook needs a communicator");
  }
  const std::lock_guard lock(hook().mutex);
  hook().communicator = communicator;
  if (hook().who[0] != '\0') {
    return;
  }
  const World& world = *communicator->impl().world;
  std::string who =
      "chainmail: rank " + std::to_string(world.rank()) + " on " + world.host() + ": ";
  who.resize(std::min(who.size(), hook().who.size() - 1));
  std::copy(who.begin(), who.end(), hook().who.begin());
  install_handlers();
}

}  // namespace chainmail
