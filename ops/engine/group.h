// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A group: the ranks that communicate, their local and cross Comms, one ordered queue of
// collectives, sends and receives beside it, and the threads that make progress. What the c10d
// backend and the Communicator are made of.
//
// Thread rule: any thread may submit; collectives of one group run in call order. Collective rule:
// every rank submits the same collectives in the same order. After a failure the group is dead and
// every call throws the first error. No torch, no global state; several groups may coexist.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

#include "ops/core/group_options.h"
#include "ops/core/operation.h"
#include "ops/topology.h"

namespace chainmail::ops {

class CallbackExecutor;

class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const Topology& topology() const noexcept = 0;
  virtual const GroupOptions& options() const noexcept = 0;

  /// Appends an operation. Throws InvalidArgument for arguments that cannot be right on any rank,
  /// or the group's error when it is dead.
  virtual std::shared_ptr<Operation> submit(Collective collective) = 0;
  /// submit() and wait, in the caller when nothing is queued: the fastest way for small operations.
  virtual void run(const Collective& collective) = 0;

  /// Collective, and ordered like one: `bytes` of zeros, equally many on all ranks, for tensors
  /// that will be reduced again and again. On one node (CHAINMAIL_LOCAL=shm) the ranks map each
  /// other's, and an all_reduce that all of them call for the same place in it works there without
  /// copying. Anywhere else, and for anything else, it is memory as any other. May outlive the
  /// group; after a failure do not go on with what is in it, nor put anything there: a rank that
  /// was stopped meanwhile may still write its share of the failed operation.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  /// Kills the group: operations in flight and later ones end with `error` on this rank, and the
  /// other ranks are told.
  virtual void abort(std::exception_ptr error) = 0;
  /// Waits for what was submitted, then closes connections. Receives that nothing has come for end
  /// with an error instead. Idempotent; the destructor does it, without waiting when the group has
  /// failed.
  virtual void shutdown() = 0;
  virtual std::exception_ptr error() const = 0;
  /// `listener` is called once with the error that ends the group, by the thread that ends it, or
  /// at once when one has. It may end other groups; it must not throw, nor wait for this one.
  virtual void on_failure(std::function<void(const std::exception_ptr&)> listener) = 0;
  /// Collectives submitted so far.
  virtual std::uint64_t sequence() const noexcept = 0;
  /// In place of options().timeout, for later operations and for shutdown().
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  /// Who runs callbacks and frees what operations have kept; null where operations end in their
  /// callers.
  virtual std::shared_ptr<CallbackExecutor> callbacks() const = 0;
};

/// Collective, and ordered like a collective: `bytes` of zeros, equally many on all ranks, of which
/// all ranks of a node have the same ones. Null on all ranks of a node that cannot map each other's
/// memory, which its first rank logs why. Who writes when is up to the callers. May outlive the
/// group.
[[nodiscard]] std::shared_ptr<std::byte> allocate_common(Group& group, std::size_t bytes);

}  // namespace chainmail::ops
