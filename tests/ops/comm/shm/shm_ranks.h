// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Runs a function as every rank of a shared-memory Comm, ranks being threads of the test.

#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "ops/comm/shm/shm_comm.h"
#include "ops/core/rendezvous.h"
#include "tests/ops/comm/parts_of.h"

namespace chainmail::ops {

/// What one rank's function gets.
struct ShmRank {
  Comm& comm;
  FailureState& failure;
  std::uint64_t sequence = 0;

  /// A context for the next operation.
  OpContext context(OpKind kind, std::size_t count, DataType dtype = DataType::kFloat32,
                    ReduceOp op = ReduceOp::kSum,
                    std::chrono::milliseconds timeout = std::chrono::seconds{60}) {
    OpContext next{MessageHeader{}, internal::Deadline::after(timeout), &failure, {}};
    next.header.kind = kind;
    next.header.sequence = ++sequence;
    next.header.count = count;
    next.header.dtype = dtype;
    next.header.reduce_op = op;
    return next;
  }
};

/// Small steps, so that a test crosses many of them.
inline ShmCommOptions small_steps() {
  ShmCommOptions options;
  options.chunk_bytes = 16384;
  options.host = "testhost";
  return options;
}

/// The errors of the ranks, null where a rank ended well.
inline std::vector<std::exception_ptr> run_shm_ranks_with_errors(
    int size, const std::function<void(ShmRank&)>& body, ShmCommOptions options = small_steps()) {
  LocalRendezvous rendezvous;
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  options.size = size;
  options.key_prefix = "test";
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank, own = options]() mutable {
      FailureState failure;
      try {
        own.rank = rank;
        const auto comm = create_shm_comm(
            own, rendezvous, internal::Deadline::after(std::chrono::seconds{30}), &failure);
        ShmRank self{*comm, failure};
        body(self);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return errors;
}

inline std::string describe(const std::exception_ptr& error) {
  if (error == nullptr) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& exception) {
    return exception.what();
  }
}

inline void run_shm_ranks(int size, const std::function<void(ShmRank&)>& body,
                          const ShmCommOptions& options = small_steps()) {
  for (const auto& error : run_shm_ranks_with_errors(size, body, options)) {
    EXPECT_EQ(describe(error), "");
  }
}

}  // namespace chainmail::ops
