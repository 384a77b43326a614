// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A terminate handler runs in the thread that failed, as ordinary code, but in a process whose
// other threads and locks are in any state: an alarm bounds all that it does. A signal handler may
// only call what signal-safety(7) lists, so its text is made beforehand.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <unistd.h>

#include <chainmail/terminate.h>

#include "base/error.h"
#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail {

namespace {

constexpr unsigned kGraceSeconds = 5;
constexpr std::chrono::milliseconds kSecondaryDelay{500};
constexpr std::size_t kLongestLine = 500;
constexpr std::string_view kUncaught = "uncaught exception: ";

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
  int rank = -1;
  pid_t process = 0;  ///< that added the hook; a child of fork is no rank
  std::terminate_handler previous_terminate = nullptr;
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
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

// Without the C++ backtrace that c10::Error carries, but with where it was thrown.
std::string without_backtrace(std::string text) {
  constexpr std::string_view kRaised = "\nException raised from ";
  constexpr std::string_view kCalls = " (most recent call first)";
  const std::size_t start = text.find(kRaised);
  if (start == std::string::npos) return text;
  std::string place = text.substr(start + 1, text.find('\n', start + 1) - start - 1);
  place.resize(std::min(place.size(), place.find(kCalls)));
  return text.substr(0, start) + " (" + place + ")";
}

// A failure that nobody catches.
struct Failure {
  std::string text;
  /// Set where another rank has failed before: this one fails because of it.
  std::shared_ptr<const PeerError> cause;
};

std::shared_ptr<const PeerError> blames_another(const PeerError& error, int own_rank) {
  return error.peer_rank() == own_rank ? nullptr : std::make_shared<const PeerError>(error);
}

// What the group fails of everything else fails of, too, whatever its type.
std::shared_ptr<const PeerError> cause_in_group(Communicator& communicator, int own_rank) {
  try {
    if (const std::exception_ptr error = communicator.impl().group->error()) {
      std::rethrow_exception(error);
    }
  } catch (const PeerError& error) {
    return blames_another(error, own_rank);
  } catch (...) {
  }
  return nullptr;
}

Failure describe_failure(Communicator* communicator, int own_rank) {
  Failure failure{"std::terminate was called", nullptr};
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const PeerError& error) {
    failure = {std::string(kUncaught) + error.what(), blames_another(error, own_rank)};
  } catch (const std::exception& error) {
    failure.text = std::string(kUncaught) + without_backtrace(error.what());
  } catch (...) {
    failure.text = "uncaught exception that is no std::exception";
  }
  if (!failure.cause && communicator != nullptr) {
    failure.cause = cause_in_group(*communicator, own_rank);
  }
  return failure;
}

// The first line of what is known of the other rank's failure, less that rank's own message, which
// it has printed itself.
std::string line_of(const PeerError& cause) {
  const std::string text = cause.what();
  const std::size_t end = std::min(text.find('\n'), text.find(": " + std::string(kUncaught)));
  return "ends because of another rank: " + text.substr(0, std::min(end, kLongestLine));
}

[[noreturn]] void on_terminate() noexcept {
  if (::getpid() != hook().process) {
    hook().previous_terminate();
    std::abort();
  }
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
    std::shared_ptr<Communicator> communicator;
    {
      const std::lock_guard lock(hook().mutex);
      communicator = hook().communicator.lock();
    }
    const Failure failure = describe_failure(communicator.get(), hook().rank);
    write_all(hook().who.data() + (failure.cause ? line_of(*failure.cause) : failure.text) + "\n");
    std::fflush(stdout);
    if (communicator && !failure.cause) {
      communicator->abort(failure.text);
    } else if (communicator) {
      communicator->impl().group->abort(std::make_exception_ptr(PeerError(*failure.cause)));
    }
    // Starters name the rank that ends first: let that be the one that has failed.
    if (failure.cause) std::this_thread::sleep_for(kSecondaryDelay);
  } catch (...) {  // the process ends whatever happens
  }
  ::_exit(kTerminatedExitCode);
}

void on_signal(int number, siginfo_t* /*info*/, void* /*context*/) {
  for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
    if (kFatalSignals[i].number == number) {
      if (::getpid() == hook().process) {
        write_all(hook().who.data());
        write_all(kFatalSignals[i].text);
        write_all("\n");
      }
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
  hook().previous_terminate = std::set_terminate(on_terminate);
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
  internal::require_communicator(communicator, "add_except_hook");
  const std::lock_guard lock(hook().mutex);
  hook().communicator = communicator;
  hook().process = ::getpid();
  if (hook().who[0] != '\0') return;
  const World& world = *communicator->impl().world;
  hook().rank = world.rank();
  std::string who =
      "chainmail: rank " + std::to_string(world.rank()) + " on " + world.host() + ": ";
  who.resize(std::min(who.size(), hook().who.size() - 1));
  std::copy(who.begin(), who.end(), hook().who.begin());
  install_handlers();
}

}  // namespace chainmail
