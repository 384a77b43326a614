// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The only thread that calls a store, so that no other one can hang in it: a TCPStore whose host is
// stopped or cut off keeps its caller forever in a receive without a limit, a FileStore in a file
// lock, a store written in Python for as long as another thread holds the interpreter.
//
// Thread-safe; tasks run in the order they were given. A thread that is caught is left to itself:
// nobody joins it, and what it uses lives as long as it does. A connection that broke is final:
// that call and every later one throw the same PeerError. A forked child has no such thread, and
// every call there throws InvalidArgument.

#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <sys/types.h>

#include <any>
#include <functional>
#include <memory>
#include <string>

#include "base/deadline.h"

namespace chainmail::internal {

class StoreThread final {
 public:
  /// Something to do with the store. May outlive its caller, so it owns what it uses.
  using Task = std::function<std::any(c10d::Store&)>;

  /// Uses clone_of(base), which the thread makes, since that opens a connection.
  explicit StoreThread(const c10::intrusive_ptr<c10d::Store>& base);
  /// Gives the thread 200 ms to finish.
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  /// Returns what `task` returns, or throws what it throws. Throws TimeoutError when it is not done
  /// by `deadline`; then it is dropped, unless it has begun.
  std::any run(Task task, Deadline deadline);
  /// Like run(), but returns after 200 ms at the latest, and at once while the store does not
  /// answer; the thread then finishes the task and logs what it throws. Throws TimeoutError when
  /// too many tasks are waiting.
  void run_or_post(Task task);

  /// Whether a task has been running for half a second.
  [[nodiscard]] bool is_silent() const;

  [[nodiscard]] bool is_of_other_process() const noexcept;

 private:
  struct Shared;

  void check_process() const;

  const std::shared_ptr<Shared> shared_;
  const pid_t process_;
};

[[nodiscard]] bool is_written_in_python(const c10d::Store& store);

/// Another connection to `store`; the store itself if it is written in Python, since
/// the Python half of a clone would be freed. May block in `store`: for tasks only.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> clone_of(c10d::Store& store);

}  // namespace chainmail::internal
