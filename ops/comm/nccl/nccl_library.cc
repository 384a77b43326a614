// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <cuda_runtime.h>

#include <cstring>
#include <optional>

#include "ops/comm/nccl/nccl_symbols.h"
#include "ops/device/cuda/relaxed_capture.h"

namespace chainmail::ops {
namespace {

static_assert(sizeof(ncclUniqueId) == sizeof(NcclId));
static_assert(static_cast<int>(ncclSuccess) == static_cast<int>(NcclCode::kSuccess) &&
              static_cast<int>(ncclRemoteError) == static_cast<int>(NcclCode::kRemoteError) &&
              static_cast<int>(ncclInProgress) == static_cast<int>(NcclCode::kInProgress));

NcclCode code_of(ncclResult_t result) { return static_cast<NcclCode>(static_cast<int>(result)); }
ncclComm_t comm_of(NcclHandle handle) { return static_cast<ncclComm_t>(handle.comm); }
static_assert(sizeof(ncclComm_t) == sizeof(NcclHandle::comm));
cudaStream_t stream_of(DeviceStream stream) { return static_cast<cudaStream_t>(stream.handle); }

std::optional<ncclDataType_t> type_of(DataType type) {
  switch (type) {
    case DataType::kUInt8:
    case DataType::kBool:
      return ncclUint8;
    case DataType::kInt8:
      return ncclInt8;
    case DataType::kInt32:
      return ncclInt32;
    case DataType::kInt64:
      return ncclInt64;
    case DataType::kUInt32:
      return ncclUint32;
    case DataType::kUInt64:
      return ncclUint64;
    case DataType::kFloat16:
      return ncclFloat16;
    case DataType::kBFloat16:
      return ncclBfloat16;
    case DataType::kFloat32:
      return ncclFloat32;
    case DataType::kFloat64:
      return ncclFloat64;
    case DataType::kInt16:
    case DataType::kUInt16:
      break;
  }
  return std::nullopt;
}

std::optional<ncclRedOp_t> op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kAvg:
      return ncclAvg;
    case ReduceOp::kProduct:
      return ncclProd;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;
  }
  return std::nullopt;
}

/// At the end of the process, when others' static objects have gone, CUDA's may have, too; all is
/// given back by the end itself.
bool is_unloading() noexcept {
  int device = 0;
  return cudaGetDevice(&device) == cudaErrorCudartUnloading;
}

// `config.name` must outlive the call, which copies it.
ncclConfig_t config_of(const NcclConfig& config) {
  ncclConfig_t made = NCCL_CONFIG_INITIALIZER;
  made.blocking = config.is_blocking ? 1 : 0;
  if (config.min_ctas > 0) made.minCTAs = config.min_ctas;
  if (config.max_ctas > 0) made.maxCTAs = config.max_ctas;
  made.splitShare = config.shares_resources ? 1 : 0;
  if (!config.name.empty()) made.commName = config.name.c_str();
  return made;
}

class NcclLibrary final : public NcclApi {
 public:
  explicit NcclLibrary(const NcclSymbols& symbols) : nccl_(symbols) {}
  int version() const noexcept override { return nccl_.version; }

  NcclCode make_id(NcclId& id) noexcept override {
    ncclUniqueId made;
    const ncclResult_t result = nccl_.get_unique_id(&made);
    std::memcpy(id.data(), &made, sizeof(made));
    return code_of(result);
  }

  NcclCode init(NcclHandle& comm, int size, const NcclId& id, int rank,
                const NcclConfig& config) noexcept override {
    ncclUniqueId given;
    std::memcpy(&given, id.data(), sizeof(given));
    ncclConfig_t settings = config_of(config);
    ncclComm_t made = nullptr;
    const ncclResult_t result = nccl_.init(&made, size, given, rank, &settings);
    comm.comm = made;
    return code_of(result);
  }

  /// `child` is written, perhaps by a thread of NCCL's, until `parent` has settled or was aborted.
  NcclCode split(NcclHandle parent, int color, int key, NcclHandle& child,
                 const NcclConfig& config) noexcept override {
    if (nccl_.split == nullptr) return NcclCode::kInvalidUsage;
    ncclConfig_t settings = config_of(config);
    const ncclResult_t result =
        nccl_.split(comm_of(parent), color < 0 ? NCCL_SPLIT_NOCOLOR : color, key,
                    reinterpret_cast<ncclComm_t*>(&child.comm), &settings);
    // NCCL (2.28's ncclCommSplit) says "success" when it has only begun.
    if (result == ncclSuccess && !config.is_blocking) return NcclCode::kInProgress;
    return code_of(result);
  }

  NcclCode finalize(NcclHandle comm) noexcept override { return end(nccl_.finalize, comm); }
  NcclCode destroy(NcclHandle comm) noexcept override { return end(nccl_.destroy, comm); }
  NcclCode abort(NcclHandle comm) noexcept override { return end(nccl_.abort, comm); }

  NcclCode async_error(NcclHandle comm, NcclCode& state) noexcept override {
    ncclResult_t found = ncclSuccess;
    const ncclResult_t result = nccl_.async_error(comm_of(comm), &found);
    state = code_of(found);
    return code_of(result);
  }

  NcclCode group_start() noexcept override { return code_of(nccl_.group_start()); }
  NcclCode group_end() noexcept override { return code_of(nccl_.group_end()); }

  NcclCode all_reduce(const void* source, void* target, std::size_t count, DataType type,
                      ReduceOp op, NcclHandle comm, DeviceStream stream) noexcept override {
    const auto own_type = type_of(type);
    const auto own_op = op_of(op);
    if (!own_type || !own_op) return NcclCode::kInvalidArgument;
    return code_of(nccl_.all_reduce(source, target, count, *own_type, *own_op, comm_of(comm),
                                    stream_of(stream)));
  }

  NcclCode reduce(const void* source, void* target, std::size_t count, DataType type, ReduceOp op,
                  int root, NcclHandle comm, DeviceStream stream) noexcept override {
    const auto own_type = type_of(type);
    const auto own_op = op_of(op);
    if (!own_type || !own_op) return NcclCode::kInvalidArgument;
    return code_of(nccl_.reduce(source, target, count, *own_type, *own_op, root, comm_of(comm),
                                stream_of(stream)));
  }

  NcclCode reduce_scatter(const void* source, void* target, std::size_t count, DataType type,
                          ReduceOp op, NcclHandle comm, DeviceStream stream) noexcept override {
    const auto own_type = type_of(type);
    const auto own_op = op_of(op);
    if (!own_type || !own_op) return NcclCode::kInvalidArgument;
    return code_of(nccl_.reduce_scatter(source, target, count, *own_type, *own_op, comm_of(comm),
                                        stream_of(stream)));
  }

  NcclCode all_gather(const void* source, void* target, std::size_t bytes, NcclHandle comm,
                      DeviceStream stream) noexcept override {
    return code_of(
        nccl_.all_gather(source, target, bytes, ncclUint8, comm_of(comm), stream_of(stream)));
  }

  NcclCode broadcast(const void* source, void* target, std::size_t bytes, int root, NcclHandle comm,
                     DeviceStream stream) noexcept override {
    return code_of(
        nccl_.broadcast(source, target, bytes, ncclUint8, root, comm_of(comm), stream_of(stream)));
  }

  NcclCode send(const void* source, std::size_t bytes, int peer, NcclHandle comm,
                DeviceStream stream) noexcept override {
    return code_of(nccl_.send(source, bytes, ncclUint8, peer, comm_of(comm), stream_of(stream)));
  }

  NcclCode receive(void* target, std::size_t bytes, int peer, NcclHandle comm,
                   DeviceStream stream) noexcept override {
    return code_of(nccl_.receive(target, bytes, ncclUint8, peer, comm_of(comm), stream_of(stream)));
  }

  NcclCode allocate(void*& memory, std::size_t bytes) noexcept override {
    if (nccl_.mem_alloc != nullptr && nccl_.mem_free != nullptr) {
      return code_of(nccl_.mem_alloc(&memory, bytes));
    }
    const bool is_done = cudaMalloc(&memory, bytes) == cudaSuccess;
    return is_done ? NcclCode::kSuccess : NcclCode::kUnhandledCudaError;
  }

  /// Waits for the current device, which must be the one that the memory is of.
  void free(void* memory) noexcept override {
    if (is_unloading()) return;
    // ncclMemFree unmaps at once, whatever still runs on the device, which our caller has made
    // current. It also asks the driver, which needs that device's context in this thread.
    const RelaxedCapture relaxed;
    static_cast<void>(cudaDeviceSynchronize());
    if (nccl_.mem_alloc != nullptr && nccl_.mem_free != nullptr) {
      static_cast<void>(nccl_.mem_free(memory));
    } else {
      static_cast<void>(cudaFree(memory));
    }
  }

  NcclCode register_memory(NcclHandle comm, void* memory, std::size_t bytes,
                           void*& registration) noexcept override {
    registration = nullptr;
    // Without it transfers go through NCCL's own buffers: slower, and as right.
    if (nccl_.reg == nullptr || nccl_.deregister == nullptr) return NcclCode::kSuccess;
    return code_of(nccl_.reg(comm_of(comm), memory, bytes, &registration));
  }

  NcclCode deregister_memory(NcclHandle comm, void* registration) noexcept override {
    if (registration == nullptr) return NcclCode::kSuccess;
    return code_of(nccl_.deregister(comm_of(comm), registration));
  }

  std::string describe(NcclCode code, NcclHandle comm) const override {
    std::string text = nccl_.error_string(static_cast<ncclResult_t>(static_cast<int>(code)));
    if (comm.comm == nullptr) return text;
    const char* const last = nccl_.last_error(comm_of(comm));
    if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
    return text;
  }

 private:
  static NcclCode end(ncclResult_t (*call)(ncclComm_t), NcclHandle comm) noexcept {
    return is_unloading() ? NcclCode::kSuccess : code_of(call(comm_of(comm)));
  }

  const NcclSymbols& nccl_;
};

}  // namespace

std::unique_ptr<NcclApi> make_nccl(const NcclSymbols& symbols) {
  return std::make_unique<NcclLibrary>(symbols);
}

}  // namespace chainmail::ops
