// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The one thread that calls a store, so that nobody else can be caught in it: a TCPStore whose host
// is stopped or cut off keeps its caller for ever in a receive without a limit, a FileStore in a
// file lock, a store written in Python for as long as another thread holds the interpreter.
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
  /// What is to be done with the store. May outlive its caller, so it owns what it uses.
  using Task = std::function<std::any(c10d::Store&)>;

  /// Works on clone_of(base), made by the thread, too, since that opens a connection.
  explicit StoreThread(const c10::intrusive_ptr<c10d::Store>& base);
  /// Gives the thread a moment to finish what was left to it.
  ~StoreThread();
  StoreThread(const StoreThread&) = delete;
  StoreThread& operator=(const StoreThread&) = delete;

  /// What `task` returns or throws. Throws TimeoutError when it is not done by `deadline`; then it
  /// runs no more, unless it has begun.
  std::any run(Task task, Deadline deadline);
  /// Like run(), but a task that is not done within a moment is left to the thread, which will log
  /// what it throws. Costs no time where the store is known to be silent. Throws TimeoutError when
  /// too much has been left.
  void run_or_leave(Task task);

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

/// Another connection to `store`; the store itself where it is written in Python, for nobody would
/// keep the Python half of a clone. Blocks as `store` does, so it is for tasks.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> clone_of(c10d::Store& store);

}  // namespace chainmail::internal
