// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <string>

#include "base/error.h"
#include "ops/algorithms/stream/nccl_reduction.h"
#include "ops/algorithms/stream/stream_flat.h"
#include "ops/algorithms/stream/stream_pipeline.h"
#include "ops/engine/device/device_dispatch.h"
#include "ops/engine/plan/plan.h"

namespace chainmail::ops {
namespace {

[[noreturn]] void refuse(const Collective& collective, const std::string& why) {
  throw InvalidArgument(std::string(to_string(collective.kind)) + " on a device: " + why);
}

Algorithm choose(const Collective& collective, const Topology& topology, const GroupOptions& group,
                 const DeviceGroupOptions& options) {
  const Algorithm asked = collective.algorithm.value_or(group.algorithm);
  if (asked != Algorithm::kAuto) return asked;
  if (options.crosses_on_host) return Algorithm::kHierarchical;
  if (topology.node_count() == 1) return Algorithm::kFlat;
  // NCCL's own tree knows nodes, too: two levels of ours pay where the wire is compressed.
  const WireFormat wire =
      wire_of(collective.wire, group.wire, collective.dtype, collective.reduce_op);
  const bool is_small = collective.count * size_of(collective.dtype) < options.flat_below_bytes;
  if (is_small || wire == WireFormat::kNative) return Algorithm::kFlat;
  return topology.min_local_size() == 1 ? Algorithm::kHierarchical : Algorithm::kTwoDimensional;
}

DevicePlan plan_unchecked(const Collective& collective, const Group& group,
                          const DeviceGroupOptions& options) {
  if (collective.cut != nullptr) {
    refuse(collective, "slices of the ranks of a node lie on CPUs; copy the tensor to one");
  }
  if (collective.shards != nullptr) {
    refuse(collective, "sums of shards are made on CPUs; copy the tensor to one");
  }
  const Topology& topology = group.topology();
  DevicePlan plan;
  plan.reduction.dtype = collective.dtype;
  plan.reduction.op = collective.reduce_op;
  if (reduces(collective.kind)) {
    static_cast<void>(nccl_reduction(collective.dtype, collective.reduce_op));
  }
  if (collective.kind != OpKind::kAllReduce) return plan;
  if (collective.count != 0 && collective.output == nullptr) refuse(collective, "output is null");
  const WireFormat wire =
      wire_of(collective.wire, group.options().wire, collective.dtype, collective.reduce_op);
  if (is_in_blocks(collective.wire.value_or(wire)) || collective.compressed_count) {
    refuse(collective,
           "the wires int8 and int4, and tensors of which a part is not rounded, are "
           "for CPUs; use native, float16 or bfloat16, or copy the tensor to one");
  }
  const Algorithm algorithm = choose(collective, topology, group.options(), options);
  if (algorithm == Algorithm::kSingleNode && topology.node_count() > 1) {
    refuse(collective, "algorithm single_node over " + topology.describe() +
                           "; use hierarchical, two_dimensional, flat or auto");
  }
  if (options.crosses_on_host && algorithm != Algorithm::kHierarchical) {
    refuse(collective, "only hierarchical crosses between nodes through host memory");
  }
  const bool is_sum =
      is_floating_point(collective.dtype) &&
      (collective.reduce_op == ReduceOp::kSum || collective.reduce_op == ReduceOp::kAvg);
  // NCCL adds halves as they are, and what it makes of them may be infinite or zero: that is for
  // those who ask for flat. Left to itself a small one is not worth rounding.
  const bool is_asked_for =
      collective.algorithm.value_or(group.options().algorithm) != Algorithm::kAuto;
  if (topology.node_count() > 1 && (algorithm != Algorithm::kFlat || is_asked_for)) {
    plan.reduction.wire =
        wire_of(collective.wire, group.options().wire, collective.dtype, collective.reduce_op);
  }
  if (is_sum && collective.reduce_op == ReduceOp::kAvg) {
    plan.reduction.scale = 1.0 / static_cast<double>(topology.size());
  }
  plan.is_hierarchical =
      is_sum && topology.node_count() > 1 && collective.count != 0 &&
      (algorithm == Algorithm::kHierarchical || algorithm == Algorithm::kTwoDimensional);
  plan.crosses_on_host = plan.is_hierarchical && options.crosses_on_host;
  plan.owners = algorithm == Algorithm::kTwoDimensional ? topology.min_local_size() : 1;
  return plan;
}

}  // namespace

DevicePlan plan_device_collective(const Collective& collective, const Group& group,
                                  const DeviceGroupOptions& options) {
  const DevicePlan plan = plan_unchecked(collective, group, options);
  const bool is_empty = collective.kind == OpKind::kAllReduce && collective.count == 0;
  if (!plan.crosses_on_host && !is_empty) check_nccl(collective.kind, group, options);
  return plan;
}

void check_nccl(OpKind kind, const Group& group, const DeviceGroupOptions& options) {
  check_unprotected_transport(
      group.options(), group.topology(),
      std::string("NCCL, in ") + to_string(kind) + " on a device,",
      options.crosses_on_host
          ? "use tensors on the CPU: of tensors on devices, non_cuda_aware takes sums "
            "and means of floating point numbers by way of the CPU, and nothing else"
          : "use tensors on the CPU, or the algorithm non_cuda_aware, which takes sums "
            "and means of floating point numbers by way of the CPU");
}

std::size_t scratch_bytes(const Collective& collective, const DevicePlan& plan,
                          const Topology& topology, const DeviceGroupOptions& options) {
  if (collective.kind == OpKind::kBarrier) return 1;
  if (collective.kind != OpKind::kAllReduce || topology.size() == 1) return 0;
  if (plan.crosses_on_host) return 0;
  return plan.is_hierarchical ? pipelined_scratch_bytes(collective.count, plan.reduction, topology,
                                                        options.chunk_bytes, plan.owners)
                              : flat_scratch_bytes(collective.count, plan.reduction);
}

std::string describe_device_call(const Collective& collective, const DevicePlan& plan) {
  std::string text = describe_data(collective);
  if (plan.is_hierarchical) text += plan.owners > 1 ? " (two_dimensional)" : " (hierarchical)";
  if (plan.reduction.wire != WireFormat::kNative) {
    text += std::string(" (") + to_string(plan.reduction.wire) + " on the wire)";
  }
  return text;
}

}  // namespace chainmail::ops
