// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The functions of NCCL that we call, without a type of NCCL's: libchainmail_cuda.so finds them in
// the libnccl.so.2 that libtorch_cuda has loaded, and tests put threads in NCCL's place.
//
// Thread rule: one thread at a time per communicator, but for abort(). Nothing here throws. With a
// communicator that is not blocking every call may return kInProgress: what it did is settled, and
// its work is on the stream, only when async_error() says something else.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ops/device/device_api.h"
#include "ops/types.h"

namespace chainmail::ops {

/// ncclResult_t.
enum class NcclCode : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kSystemError = 2,
  kInternalError = 3,
  kInvalidArgument = 4,
  kInvalidUsage = 5,
  kRemoteError = 6,
  kInProgress = 7,
};

[[nodiscard]] constexpr bool is_bad(NcclCode code) noexcept {
  return code != NcclCode::kSuccess && code != NcclCode::kInProgress;
}

/// An ncclComm_t.
struct NcclHandle {
  void* comm = nullptr;
};

/// ncclUniqueId.
using NcclId = std::array<char, 128>;

/// The fields of ncclConfig_t that we set; 0 and empty leave NCCL's default.
struct NcclConfig {
  bool is_blocking = false;
  int min_ctas = 0;
  int max_ctas = 0;
  bool shares_resources = true;  ///< of a split with its parent
  std::string name;              ///< of the communicator, for NCCL's own logs
};

class NcclApi {
 public:
  virtual ~NcclApi() = default;

  /// Such as 22809 for 2.28.9.
  virtual int version() const noexcept = 0;
  virtual NcclCode make_id(NcclId& id) noexcept = 0;
  virtual NcclCode init(NcclHandle& comm, int size, const NcclId& id, int rank,
                        const NcclConfig& config) noexcept = 0;
  /// A negative color makes no communicator for this rank; it must call all the same.
  virtual NcclCode split(NcclHandle parent, int color, int key, NcclHandle& child,
                         const NcclConfig& config) noexcept = 0;
  virtual NcclCode finalize(NcclHandle comm) noexcept = 0;
  virtual NcclCode destroy(NcclHandle comm) noexcept = 0;
  /// From any thread; ends what the communicator has on streams.
  virtual NcclCode abort(NcclHandle comm) noexcept = 0;
  /// The state of the communicator. A return other than success is an error of this call itself.
  virtual NcclCode async_error(NcclHandle comm, NcclCode& state) noexcept = 0;

  virtual NcclCode group_start() noexcept = 0;
  virtual NcclCode group_end() noexcept = 0;

  // Types and operations that NCCL has: can_reduce() says which; others are kInvalidArgument.
  virtual NcclCode all_reduce(const void* source, void* target, std::size_t count, DataType type,
                              ReduceOp op, NcclHandle comm, DeviceStream stream) noexcept = 0;
  virtual NcclCode reduce(const void* source, void* target, std::size_t count, DataType type,
                          ReduceOp op, int root, NcclHandle comm, DeviceStream stream) noexcept = 0;
  virtual NcclCode reduce_scatter(const void* source, void* target, std::size_t count,
                                  DataType type, ReduceOp op, NcclHandle comm,
                                  DeviceStream stream) noexcept = 0;
  // What only moves data counts bytes.
  virtual NcclCode all_gather(const void* source, void* target, std::size_t bytes, NcclHandle comm,
                              DeviceStream stream) noexcept = 0;
  virtual NcclCode broadcast(const void* source, void* target, std::size_t bytes, int root,
                             NcclHandle comm, DeviceStream stream) noexcept = 0;
  virtual NcclCode send(const void* source, std::size_t bytes, int peer, NcclHandle comm,
                        DeviceStream stream) noexcept = 0;
  virtual NcclCode receive(void* target, std::size_t bytes, int peer, NcclHandle comm,
                           DeviceStream stream) noexcept = 0;

  /// Memory that NCCL can register; of the current device. Waits for the device.
  virtual NcclCode allocate(void*& memory, std::size_t bytes) noexcept = 0;
  virtual void free(void* memory) noexcept = 0;
  virtual NcclCode register_memory(NcclHandle comm, void* memory, std::size_t bytes,
                                   void*& registration) noexcept = 0;
  virtual NcclCode deregister_memory(NcclHandle comm, void* registration) noexcept = 0;

  /// The error's name, and what NCCL has logged last about `comm` when it is given.
  virtual std::string describe(NcclCode code, NcclHandle comm) const = 0;
};

/// True when NCCL reduces elements of `type` with `op`: no bitwise operations, neither int16 nor
/// uint16. kAvg is
/// for floating point: NCCL multiplies by 1/ranks rounded to `type` before it adds.
[[nodiscard]] constexpr bool nccl_can_reduce(DataType type, ReduceOp op) noexcept {
  return type != DataType::kInt16 && type != DataType::kUInt16 && op != ReduceOp::kBitAnd &&
         op != ReduceOp::kBitOr && op != ReduceOp::kBitXor;
}

}  // namespace chainmail::ops
