// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/collectives/dispatch.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <span>

#include "ops/algorithms/all_reduce.h"
#include "ops/algorithms/shard_sum.h"
#include "ops/kernels/cpu/kernels.h"

namespace chainmail::ops {
namespace {

// What is small enough not to be missed.
constexpr std::size_t kKeepBytes = std::size_t{64} << 20;
// A broadcast over several nodes goes in pieces, so that one node passes a piece on inside while
// the next is on the wire.
constexpr std::size_t kBroadcastPieceBytes = std::size_t{1} << 20;

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes > 0 && to != from) {
    std::memmove(to, from, bytes);  // callers may hand over overlapping places of one buffer
  }
}

bool overlaps(std::span<const std::byte> a, std::span<const std::byte> b) {
  const std::less<const std::byte*> before;
  return !a.empty() && !b.empty() && before(a.data(), b.data() + b.size()) &&
         before(b.data(), a.data() + a.size());
}

std::size_t total_bytes(ConstParts parts) {
  std::size_t sum = 0;
  for (const auto& part : parts) sum += part.size();
  return sum;
}

/// Whether writing `outputs` would change `inputs`. Part `own` may be the same in both.
bool overlaps(ConstParts inputs, Parts outputs, std::size_t own) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      const bool is_own = i == own && o == own && inputs[i].data() == outputs[o].data();
      if (!is_own && overlaps(inputs[i], outputs[o])) return true;
    }
  }
  return false;
}

}  // namespace

Reduction Dispatcher::reduction_of(const Collective& collective, const Plan& plan) const noexcept {
  Reduction reduction;
  reduction.dtype = collective.dtype;
  reduction.op = collective.reduce_op;
  reduction.wire = plan.wire;
  if (collective.reduce_op == ReduceOp::kAvg) {
    reduction.op = ReduceOp::kSum;  // integers are divided once, at the end
    reduction.scale = is_floating_point(collective.dtype) ? 1.0 / topology_.size() : 1.0;
  }
  if (collective.compressed_count) reduction.compressed_count = *collective.compressed_count;
  if (collective.feedback) {
    reduction.contribution_residual = collective.feedback->contributions;
    reduction.result_residual = collective.feedback->results;
    reduction.rounding_error = collective.feedback->error;
  }
  return reduction;
}

void Dispatcher::run(const Collective& collective, const Plan& plan, const OpContext& context) {
  carry_out(collective, plan, context);
  scratch_.trim(kKeepBytes);
}

void Dispatcher::carry_out(const Collective& collective, const Plan& plan,
                           const OpContext& context) {
  switch (collective.kind) {
    case OpKind::kAllReduce:
      if (collective.shards != nullptr) return all_reduce_shards(collective, plan, context);
      if (collective.cut != nullptr) return reduce_to_owners(collective, plan, context);
      return all_reduce(collective, plan, context, collective.output, true);
    case OpKind::kReduce:
      return reduce(collective, plan, context);
    case OpKind::kReduceScatter:
      return reduce_scatter(collective, plan, context);
    case OpKind::kAllGather:
      return all_gather(collective, context);
    case OpKind::kBroadcast:
      return broadcast(collective, context);
    case OpKind::kGather:
      return gather(collective, context);
    case OpKind::kScatter:
      return scatter(collective, context);
    case OpKind::kAllToAll:
      return all_to_all(collective, context);
    case OpKind::kBarrier:
      return barrier(context);
    case OpKind::kAllocate:
      *collective.allocated = allocate(collective, context);
      return;
    case OpKind::kSend:
    case OpKind::kRecv:
      return;  // never come here: see Transfers
  }
}

Comms Dispatcher::comms_for(Algorithm algorithm, const OpContext& context) {
  Comms comms;
  comms.topology = &topology_;
  const bool is_two_dimensional = algorithm == Algorithm::kTwoDimensional;
  if (is_two_dimensional || algorithm == Algorithm::kHierarchical) {
    comms.local = comms_.local(context);
    if (is_two_dimensional || topology_.local_rank_of(rank_) == 0) {
      comms.cross = comms_.cross(context);
    }
  } else {
    comms.local = comms.flat = comms_.flat(context);  // the local one on one node
  }
  return comms;
}

void Dispatcher::reduce_to_owners(const Collective& collective, const Plan& plan,
                                  const OpContext& context) {
  ops::reduce_to_owners(comms_for(plan.algorithm, context), *collective.cut, collective.output,
                        reduction_of(collective, plan), context, chunk_bytes_);
}

void Dispatcher::all_reduce_shards(const Collective& collective, const Plan& plan,
                                   const OpContext& context) {
  if (cut_ != collective.shards) {
    shard_plan_.emplace(*collective.shards, topology_, rank_);
    cut_ = collective.shards;
  }
  ops::all_reduce_shards(
      plan.algorithm, comms_for(plan.algorithm, context), *shard_plan_,
      {collective.pieces, collective.output, collective.count, collective.dtype, plan.wire},
      context, chunk_bytes_);
}

void Dispatcher::all_reduce(const Collective& collective, const Plan& plan,
                            const OpContext& context, std::byte* data, bool wants_result) {
  const Comms comms = comms_for(plan.algorithm, context);
  ops::all_reduce(plan.algorithm, comms, data, collective.count, reduction_of(collective, plan),
                  context, chunk_bytes_);
  if (wants_result && is_integer_average(collective)) {
    divide_in_place(data, collective.count, collective.dtype, topology_.size());
  }
}

void Dispatcher::reduce(const Collective& collective, const Plan& plan, const OpContext& context) {
  if (topology_.node_count() == 1) {
    if (Comm* comm = comms_.flat(context); comm != nullptr) {
      comm->reduce(collective.output, collective.count, reduction_of(collective, plan),
                   collective.root, context);
    }
    if (collective.root == rank_ && is_integer_average(collective)) {
      divide_in_place(collective.output, collective.count, collective.dtype, topology_.size());
    }
    return;
  }
  // All ranks reduce their share, which is faster than one rank reducing all; what the others get
  // lands in a copy, for only the root's tensor may change.
  const bool is_root = collective.root == rank_;
  std::byte* data = collective.output;
  if (!is_root && plan.bytes > 0) {
    data = scratch_.get(plan.bytes);
    copy_bytes(data, collective.output, plan.bytes);
  }
  all_reduce(collective, plan, context, data, is_root);
}

void Dispatcher::reduce_scatter(const Collective& collective, const Plan& plan,
                                const OpContext& context) {
  const std::size_t part_bytes = collective.count * size_of(collective.dtype);
  Inputs inputs = input_parts(collective, topology_.size());
  Comm* comm = comms_.flat(context);
  if (comm == nullptr) {
    copy_bytes(collective.output, inputs[0].data(), part_bytes);
    return;
  }
  Outputs outputs(inputs.size());
  const auto own = static_cast<std::size_t>(rank_);
  outputs[own] = {collective.output, part_bytes};
  keep_apart(inputs, outputs);
  comm->reduce_scatter(inputs, collective.output, reduction_of(collective, plan), context);
  if (is_integer_average(collective)) {
    divide_in_place(collective.output, collective.count, collective.dtype, topology_.size());
  }
}

void Dispatcher::all_gather(const Collective& collective, const OpContext& context) {
  if (collective.cut != nullptr) {
    Comms comms;
    comms.topology = &topology_;
    comms.local = comms_.local(context);
    if (collective.cut->is_over_nodes) comms.cross = comms_.cross(context);
    return gather_from_owners(comms, *collective.cut, collective.output, collective.dtype, context);
  }
  const Outputs parts = output_parts(collective, topology_.size());
  const std::span<std::byte> own = parts[static_cast<std::size_t>(rank_)];
  copy_bytes(own.data(), collective.input, own.size());
  if (Comm* comm = comms_.flat(context); comm != nullptr) comm->all_gather(parts, context);
}

void Dispatcher::broadcast(const Collective& collective, const OpContext& context) {
  const std::size_t bytes = collective.count * size_of(collective.dtype);
  const int root_node = topology_.node_of(collective.root);
  const int node = topology_.node_of(rank_);
  const bool is_leader = topology_.local_rank_of(rank_) == 0;
  Comm* local = comms_.local(context);
  Comm* cross = is_leader ? comms_.cross(context) : nullptr;
  const bool has_several_nodes = topology_.node_count() > 1;
  const std::size_t piece =
      has_several_nodes ? kBroadcastPieceBytes : std::max<std::size_t>(bytes, 1);

  // The root's node first, so that its leader has the piece; then the leaders; then the others.
  std::size_t start = 0;
  do {
    const std::size_t length = std::min(piece, bytes - start);
    std::byte* data = collective.output + start;
    if (local != nullptr && node == root_node) {
      local->broadcast(data, length, topology_.local_rank_of(collective.root), context);
    }
    if (cross != nullptr) cross->broadcast(data, length, root_node, context);
    if (local != nullptr && node != root_node) local->broadcast(data, length, 0, context);
    start += length;
  } while (start < bytes);
}

void Dispatcher::gather(const Collective& collective, const OpContext& context) {
  const std::size_t part_bytes = collective.count * size_of(collective.dtype);
  Inputs inputs(static_cast<std::size_t>(topology_.size()));
  inputs[static_cast<std::size_t>(collective.root)] = {collective.input, part_bytes};
  Outputs outputs(inputs.size());
  if (rank_ == collective.root) outputs = output_parts(collective, topology_.size());
  exchange(inputs, outputs, context);
}

void Dispatcher::scatter(const Collective& collective, const OpContext& context) {
  const std::size_t part_bytes = collective.count * size_of(collective.dtype);
  Inputs inputs(static_cast<std::size_t>(topology_.size()));
  if (rank_ == collective.root) inputs = input_parts(collective, topology_.size());
  Outputs outputs(inputs.size());
  outputs[static_cast<std::size_t>(collective.root)] = {collective.output, part_bytes};
  exchange(inputs, outputs, context);
}

void Dispatcher::all_to_all(const Collective& collective, const OpContext& context) {
  Inputs inputs = input_parts(collective, topology_.size());
  exchange(inputs, output_parts(collective, topology_.size()), context);
}

void Dispatcher::exchange(Inputs& inputs, const Outputs& outputs, const OpContext& context) {
  Comm* comm = comms_.flat(context);
  if (comm == nullptr) {
    copy_bytes(outputs[0].data(), inputs[0].data(), std::min(inputs[0].size(), outputs[0].size()));
    return;
  }
  keep_apart(inputs, outputs);
  comm->all_to_all(inputs, outputs, context);
}

void Dispatcher::keep_apart(Inputs& inputs, const Outputs& outputs) {
  if (!overlaps(inputs, outputs, static_cast<std::size_t>(rank_))) return;
  std::byte* copy = scratch_.get(total_bytes(inputs));
  for (auto& input : inputs) {
    copy_bytes(copy, input.data(), input.size());
    input = {copy, input.size()};
    copy += input.size();
  }
}

std::shared_ptr<std::byte> Dispatcher::allocate(const Collective& collective,
                                                const OpContext& context) {
  Comm* local = comms_.local(context);
  if (local == nullptr) return allocate_private(collective.count);
  return collective.is_common ? local->allocate_common(collective.count, context)
                              : local->allocate(collective.count, context);
}

void Dispatcher::barrier(const OpContext& context) {
  // Nobody leaves before all leaders have met, and they meet when all of their node have come.
  Comm* local = comms_.local(context);
  const bool is_leader = topology_.local_rank_of(rank_) == 0;
  Comm* cross = is_leader ? comms_.cross(context) : nullptr;
  if (local != nullptr) local->barrier(context);
  if (cross != nullptr) cross->barrier(context);
  if (local != nullptr && topology_.node_count() > 1) local->barrier(context);
}

}  // namespace chainmail::ops
