// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an algorithm on a GPU's streams works with: communicators, streams, memory.
//
// Plain values that own nothing; one thread at a time. Work is queued, not waited for: functions
// that take a StreamWork return when NCCL has taken their calls.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "ops/comm/comm.h"
#include "ops/comm/nccl/nccl_comm.h"
#include "ops/device/device_memory.h"
#include "ops/topology.h"

namespace chainmail::ops {

/// Chunks between the nodes at one time.
inline constexpr std::size_t kStreamPipelineDepth = 3;

/// As Comms: null where this rank has none.
struct StreamComms {
  const Topology* topology = nullptr;
  int rank = 0;
  NcclComm* flat = nullptr;
  NcclComm* local = nullptr;
  NcclComm* cross = nullptr;
};

/// The way between nodes through host memory (leaders only).
struct HostCrossing {
  /// Once `ready` is done, sums `count` elements in pinned memory over the leaders, in place, and
  /// then sets *flag to the ticket that is returned, or past it. Keeps order; returns at once.
  std::function<std::uint32_t(DeviceEvent ready, std::byte* data, std::size_t count,
                              const Reduction& reduction)>
      start;
  std::uint32_t* flag = nullptr;
  GrowingMemory* memory = nullptr;
  DeviceStream out_stream;  ///< copies to the host
};

struct StreamWork {
  DeviceApi& device;
  DeviceStream stream;        ///< the caller's
  DeviceStream cross_stream;  ///< of the group
  DeviceEvent local_done;
  std::array<DeviceEvent, kStreamPipelineDepth> cross_done;
  GrowingMemory& scratch;
  bool may_allocate = true;
  NcclWait wait;
  std::uint32_t* flag = nullptr;  ///< of infinities and NaN on the wire
  bool crosses_on_host = false;   ///< instead of over `cross`, on all ranks
  HostCrossing* host = nullptr;   ///< of a leader, then
  EventPool* events = nullptr;    ///< with `host`

  void check(DeviceCode code, const char* what) const { check_device(device, code, what); }
};

/// The 16-bit type of a wire format.
[[nodiscard]] constexpr DataType wire_type(WireFormat wire) noexcept {
  return wire == WireFormat::kFloat16 ? DataType::kFloat16 : DataType::kBFloat16;
}

/// float16 and bfloat16, whose sums must be scaled before they are stored.
[[nodiscard]] constexpr bool is_narrow(DataType type) noexcept {
  return type == DataType::kFloat16 || type == DataType::kBFloat16;
}

}  // namespace chainmail::ops
