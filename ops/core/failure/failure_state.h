// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A group's failure: set once by whoever learns of it first, looked at by every wait loop.
//
// Thread-safe. Once failed, the group is dead; the first error is what everybody gets.

#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

namespace chainmail::ops {

class FailureState {
 public:
  /// One relaxed load: cheap enough for a spin loop.
  bool has_failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

  /// Records `error` unless there is one already; true when this call was the first. Runs the
  /// listeners (which wake sleepers, close sockets, tell the peers) in the caller's thread.
  bool fail(std::exception_ptr error);

  /// Throws the recorded error; returns when there is none.
  void rethrow_if_failed() const;

  std::exception_ptr error() const;

  /// `listener` runs once, in fail(), or at once when already failed. Must not throw.
  void on_failure(std::function<void(const std::exception_ptr&)> listener);

 private:
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::exception_ptr error_;
  std::vector<std::function<void(const std::exception_ptr&)>> listeners_;
};

}  // namespace chainmail::ops
