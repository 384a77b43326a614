// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Carries out one collective over a group's Comms.
//
// For the thread that runs the operation. Every rank takes the same steps in the same order. Throws
// what the Comms throw; the group is dead then.

#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>

#include "ops/algorithms/all_reduce.h"
#include "ops/algorithms/shard_plan.h"
#include "ops/comm/comm.h"
#include "ops/comm/scratch.h"
#include "ops/engine/comms/comm_set.h"
#include "ops/engine/plan/plan.h"

namespace chainmail::ops {

class Dispatcher {
 public:
  Dispatcher(int rank, const Topology& topology, std::size_t chunk_bytes, CommSet& comms)
      : rank_(rank), topology_(topology), chunk_bytes_(chunk_bytes), comms_(comms) {}

  void run(const Collective& collective, const Plan& plan, const OpContext& context);
  [[nodiscard]] Reduction reduction_of(const Collective& collective,
                                       const Plan& plan) const noexcept;

 private:
  using Inputs = std::vector<std::span<const std::byte>>;
  using Outputs = std::vector<std::span<std::byte>>;

  void carry_out(const Collective& collective, const Plan& plan, const OpContext& context);
  void all_reduce(const Collective& collective, const Plan& plan, const OpContext& context,
                  std::byte* data, bool wants_result);
  [[nodiscard]] Comms comms_for(Algorithm algorithm, const OpContext& context);
  void reduce_to_owners(const Collective& collective, const Plan& plan, const OpContext& context);
  void all_reduce_shards(const Collective& collective, const Plan& plan, const OpContext& context);
  void reduce(const Collective& collective, const Plan& plan, const OpContext& context);
  void reduce_scatter(const Collective& collective, const Plan& plan, const OpContext& context);
  void all_gather(const Collective& collective, const OpContext& context);
  void broadcast(const Collective& collective, const OpContext& context);
  void gather(const Collective& collective, const OpContext& context);
  void scatter(const Collective& collective, const OpContext& context);
  void all_to_all(const Collective& collective, const OpContext& context);
  void barrier(const OpContext& context);
  std::shared_ptr<std::byte> allocate(const Collective& collective, const OpContext& context);
  void exchange(Inputs& inputs, const Outputs& outputs, const OpContext& context);
  /// Moves `inputs` to a copy when writing `outputs` would change them.
  void keep_apart(Inputs& inputs, const Outputs& outputs);

  int rank_;
  const Topology& topology_;
  std::size_t chunk_bytes_;
  CommSet& comms_;
  Scratch scratch_;                      ///< for copies of inputs
  std::shared_ptr<const ShardCut> cut_;  ///< the last one, and what follows from it
  std::optional<ShardPlan> shard_plan_;
};

}  // namespace chainmail::ops
