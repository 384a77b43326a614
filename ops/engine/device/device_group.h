// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A group's collectives on the memory of one GPU: what the c10d backend calls for CUDA tensors.
//
// Stands beside the group's ops::Group, which carries its topology, options, time limit and
// failures: when one of the two dies so does the other, on all ranks.
//
// Thread rule: any thread may issue; collectives are ordered, one after the other, whatever streams
// they are given. Collective rule: every rank issues the same collectives in the same order, across
// all device groups of the process that share ranks. Communicators are made by the first collective
// that needs them, which therefore waits for the other ranks. A send or receive stands in the order
// of those between the same ranks in the same direction and in no other; it waits for nobody when
// it is issued.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ops/core/rendezvous.h"
#include "ops/device_library/device_library.h"
#include "ops/engine/device/operation/device_operation.h"
#include "ops/engine/group.h"
#include "ops/kernels/pack.h"

namespace chainmail::ops {

struct DeviceGroupOptions {
  int device = 0;  ///< CUDA's index in this process
  /// The cross step goes through host memory and the group's own carrier (TCP or MPI) instead of
  /// NCCL: ChainerMN's non_cuda_aware, for fabrics that NCCL cannot use. Needs kHierarchical.
  bool crosses_on_host = false;
  std::size_t chunk_bytes = std::size_t{8} << 20;  ///< of the pipeline; equal on all ranks
  /// kAuto takes one flat call below this. A guess: nothing has been measured on GPUs yet.
  std::size_t flat_below_bytes = std::size_t{256} << 10;
  /// Local and cross communicators are split from the flat one; else each is made from an id of its
  /// own, which NCCL before 2.18 needs.
  bool splits_communicators = true;
  /// NCCL calls block until their work is on the stream. Quicker to issue, but a peer that dies
  /// while a connection is being made is noticed by the time limit only, and may end this process:
  /// NCCL's abort does not wait for a call that is under way.
  bool is_blocking = false;
  int max_ctas = 0;  ///< per communicator; 0: NCCL's choice
  /// The job's ranks of the group's, for messages; empty: the same numbers.
  std::vector<int> global_ranks;
};

/// Tensors that are packed again and again: their table is in device memory, made once.
class DevicePack {
 public:
  virtual ~DevicePack() = default;
  /// Each tensor's elements times `scale`, rounded once, to its offset in `buffer`. `flag` as in
  /// DeviceKernels::convert.
  virtual void pack(void* buffer, DataType buffer_type, double scale, std::uint32_t* flag,
                    DeviceStream stream) = 0;
  virtual void unpack(const void* buffer, DataType buffer_type, double scale, std::uint32_t* flag,
                      DeviceStream stream) = 0;
};

class DeviceGroup {
 public:
  virtual ~DeviceGroup() = default;
  virtual const DeviceGroupOptions& options() const noexcept = 0;

  /// Queues the work of `collective`, whose buffers are device memory, behind what is on `stream`,
  /// and returns when it is queued; what is queued on `stream` next sees the result. The buffers
  /// belong to the operation until then. `kind` is any but kAllocate; members as for Group::submit,
  /// but a kRecv names its sender, tags and shape_hash mean nothing (NCCL matches by order) and
  /// is_async has no meaning.
  /// `collective.algorithm` and `wire` override the group's: kFlat is pure_nccl, on the wire as a
  /// whole (ChainerMN's fp16 mode: NCCL adds in 16 bits, scaled before); the hierarchical ones
  /// round at the hop between nodes. Integers and operations other than kSum and kAvg take one flat
  /// call. Throws InvalidArgument, or the group's error.
  virtual std::shared_ptr<DeviceOperation> issue(const Collective& collective,
                                                 DeviceStream stream) = 0;
  /// Several kSend and kRecv, in any order, which NCCL moves at the same time. They stand in the
  /// order of the collectives and use the communicator of all ranks. What is issued together here
  /// must be issued together by its peer: it does not meet what is issued alone.
  virtual std::shared_ptr<DeviceOperation> issue_together(std::span<const Collective> transfers,
                                                          DeviceStream stream) = 0;

  /// Done when what is on `stream` now is; limited as an operation of `limit`. Throws
  /// InvalidArgument for a stream that is being captured.
  virtual std::shared_ptr<DeviceOperation> mark(DeviceStream stream,
                                                std::chrono::milliseconds limit) = 0;

  /// Makes communicators and scratch memory for `collective`, which is no kSend or kRecv, as
  /// issue() would; collective. What will be captured into a CUDA graph must have been prepared or
  /// issued before.
  virtual void prepare(const Collective& collective) = 0;

  /// Tensors of this device; see plan_pack(). Any time, no peer is involved.
  [[nodiscard]] virtual std::unique_ptr<DevicePack> make_pack(
      std::span<const PackedTensor> tensors) = 0;

  /// `bytes` of device memory registered with NCCL where its version can. May outlive the group.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  /// Waits for what was issued, then destroys the communicators; aborts them when the group has
  /// failed. Idempotent; the destructor does it.
  virtual void shutdown() = 0;
  /// Null while alive.
  virtual std::exception_ptr error() const = 0;
};

/// This rank's end of `group` on a device. `rendezvous` must be this device group's own. Waits for
/// nobody. `group` is kept alive. Throws InvalidArgument, CudaError.
[[nodiscard]] std::shared_ptr<DeviceGroup> create_device_group(
    DeviceLibrary& library, std::shared_ptr<Group> group, std::shared_ptr<Rendezvous> rendezvous,
    DeviceGroupOptions options = {});

}  // namespace chainmail::ops
