// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where code and memory of the users may be touched: their callbacks may take any lock, and so may
// the destructors of their tensors (Python's take the interpreter's). So neither runs in a thread
// of the engine, nor in anybody's while it holds a lock of ours, nor at all once the interpreter
// that owns them begins to end.
//
// Thread-safe.

#pragma once

#include <chrono>

namespace chainmail::ops {

/// While one of these exists, the thread must not free memory of users: what would free some gives
/// it to the group's CallbackExecutor instead. Threads of the engine have one for life.
class DefersRelease {
 public:
  DefersRelease() noexcept { ++depth(); }
  ~DefersRelease() { --depth(); }
  DefersRelease(const DefersRelease&) = delete;
  DefersRelease& operator=(const DefersRelease&) = delete;

  [[nodiscard]] static bool is_active() noexcept { return depth() > 0; }

 private:
  static int& depth() noexcept;
};

/// The process's permission to run user code in threads of ours. Given until close().
class UserCodeGate {
 public:
  /// False when the gate is closed; else user code may run until leave().
  [[nodiscard]] static bool enter() noexcept;
  static void leave() noexcept;
  /// For who ends the interpreter that callbacks and tensors belong to, before it does. Waits for
  /// those who have entered; false when `limit` passed first.
  static bool close(std::chrono::milliseconds limit) noexcept;
};

}  // namespace chainmail::ops
