// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where kernels of a FakeComm's ranks meet, and what they do to each other's memory.
//
// With the machine locked.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/ops/support/fake_gpu/fake_nccl.h"

namespace chainmail::test {

/// One collective, by rank of the communicator.
struct FakeMeeting {
  std::vector<std::shared_ptr<FakeCall>> calls;
  std::size_t arrived = 0;
};

/// Rank `rank` of `comm` has come with `call`, its collective number `number`. Whoever comes last
/// does the work for all.
void post_call(FakeCluster& cluster, FakeComm& comm, int rank,
               const std::shared_ptr<FakeCall>& call, std::uint64_t number);

}  // namespace chainmail::test
