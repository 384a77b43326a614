// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Contestants that run in the benchmark's own processes: groups of c10d, the engine itself, and
// the memory's speed as the limit of both.
//
// Collective: every rank makes the same ones in the same order.

#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string>

#include "ops/engine/group.h"
#include "tools/bench/contestants/contestant.h"
#include "tools/bench/contestants/groups.h"
#include "tools/bench/measure/control.h"

namespace chainmail::bench {

/// What a user gets through c10d. `ranks` is this process's place in the candidate's group; a group
/// of fewer ranks than the job's has a null group elsewhere, which takes no part. On a GPU the
/// device's time is measured, by events, or with Case::is_issue that of the call alone.
[[nodiscard]] std::unique_ptr<Contestant> make_c10d_contestant(Candidate candidate, Ranks ranks,
                                                               std::string description,
                                                               c10::Device device = c10::kCPU);

struct EngineCalls {
  /// The tensors of all_reduce lie in memory of ops::Group::allocate(), which the ranks of a node
  /// map, and nothing is staged.
  bool uses_group_memory = false;
  /// More than 0: all_reduce is the sum of that many shards, divided evenly among the ranks, along
  /// their tree. Sums of float types only.
  std::uint32_t shards = 0;
};

/// The engine's call without c10d and torch. All operations but send_recv.
[[nodiscard]] std::unique_ptr<Contestant> make_engine_contestant(std::string name,
                                                                 std::shared_ptr<ops::Group> group,
                                                                 EngineCalls how);

/// The least that an in-place all-reduce in the memory of one node can take: every rank's buffer
/// read once and written once, by a += b on all ranks' cores at once.
[[nodiscard]] std::unique_ptr<Contestant> make_memory_contestant(Control& control);

}  // namespace chainmail::bench
