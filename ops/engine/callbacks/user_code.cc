// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/callbacks/user_code.h"

#include <pthread.h>

#include <atomic>
#include <cstdint>

#include "base/deadline.h"
#include "base/threads/poll_until.h"

namespace chainmail::ops {
namespace {

// How many are inside, and the highest bit once the gate is closed.
constexpr std::uint64_t kClosed = std::uint64_t{1} << 63U;

// Never destroyed: threads may come while the process ends.
std::atomic<std::uint64_t> gate{0};
thread_local std::uint64_t entered = 0;  // by this thread

// A forked child has none of the threads that were inside, but for the one that forked.
void forget_other_threads() { gate.store(entered | (gate.load() & kClosed)); }

}  // namespace

int& DefersRelease::depth() noexcept {
  static thread_local int depth = 0;
  return depth;
}

bool UserCodeGate::enter() noexcept {
  [[maybe_unused]] static const int registered =
      ::pthread_atfork(nullptr, nullptr, forget_other_threads);
  ++entered;
  if ((gate.fetch_add(1) & kClosed) == 0) return true;
  leave();
  return false;
}

void UserCodeGate::leave() noexcept {
  gate.fetch_sub(1);
  --entered;
}

bool UserCodeGate::close(std::chrono::milliseconds limit) noexcept {
  gate.fetch_or(kClosed);
  return internal::poll_until([] { return gate.load() == kClosed; },
                              internal::Deadline::after(limit));
}

}  // namespace chainmail::ops
