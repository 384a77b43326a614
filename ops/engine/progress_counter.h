// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Counts the operations that a process has begun, so that somebody outside can tell a rank that is
// stuck from those that wait for it.
//
// Thread-safe. A FailureNews that is one, too, is told by every group.

#pragma once

namespace chainmail::ops {

class ProgressCounter {
 public:
  virtual ~ProgressCounter() = default;
  /// An operation begins on this rank. In the path of the smallest ones: takes a nanosecond.
  virtual void count_operation() noexcept = 0;
};

}  // namespace chainmail::ops
