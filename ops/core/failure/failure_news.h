// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a group tells whoever started its ranks (the launcher, a store), and learns from there.
//
// Thread-safe.

#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "ops/core/failure/failure_state.h"

namespace chainmail::ops {

/// News from outside the data path (launcher, store): lets a group learn of a failure, and tell.
class FailureNews {
 public:
  virtual ~FailureNews() = default;
  /// `state.fail()` will be called with a PeerError when a rank of the job is reported dead, or
  /// with the error another rank announced for group `group`. Until unsubscribed.
  virtual void subscribe(const std::string& group, const std::vector<int>& global_ranks,
                         std::shared_ptr<FailureState> state) = 0;
  virtual void unsubscribe(const std::string& group) = 0;
  /// Tells the other ranks of `group` that it is dead and why. Never throws.
  virtual void announce(const std::string& group, const std::exception_ptr& error) noexcept = 0;
};

/// Counts the operations that a process has begun, so that somebody outside can tell a rank that is
/// stuck from those that wait for it. A FailureNews that is one, too, is told by every group.
class ProgressCounter {
 public:
  virtual ~ProgressCounter() = default;
  /// An operation begins on this rank. In the path of the smallest ones: takes a nanosecond.
  virtual void count_operation() noexcept = 0;
};

}  // namespace chainmail::ops
