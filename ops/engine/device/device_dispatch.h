// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// From a Collective on device memory to calls on streams.
//
// One thread at a time. Pure decisions: equal arguments give equal calls on every rank.

#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "ops/algorithms/stream/stream_work.h"
#include "ops/engine/device/device_group.h"

namespace chainmail::ops {

/// How a collective is done.
struct DevicePlan {
  bool is_hierarchical = false;
  int owners = 1;  ///< with is_hierarchical
  bool crosses_on_host = false;
  Reduction reduction;
};

/// Throws InvalidArgument for what cannot be done on any rank.
[[nodiscard]] DevicePlan plan_device_collective(const Collective& collective, const Group& group,
                                                const DeviceGroupOptions& options);

/// Throws InvalidArgument where NCCL may carry no data of `group` between nodes: they are to be
/// encrypted or authenticated.
void check_nccl(OpKind kind, const Group& group, const DeviceGroupOptions& options);

[[nodiscard]] std::size_t scratch_bytes(const Collective& collective, const DevicePlan& plan,
                                        const Topology& topology,
                                        const DeviceGroupOptions& options);

/// Queues it.
void queue_collective(const Collective& collective, const DevicePlan& plan,
                      const StreamComms& comms, StreamWork& work,
                      const DeviceGroupOptions& options);

/// Queues sends and receives as one call.
void queue_transfers(std::span<const Collective> transfers, const StreamComms& comms,
                     StreamWork& work);

/// "all_reduce sum of float32 [1000] (hierarchical, float16 between nodes)"
[[nodiscard]] std::string describe_device_call(const Collective& collective,
                                               const DevicePlan& plan);

}  // namespace chainmail::ops
