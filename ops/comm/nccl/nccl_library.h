// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// NcclApi over NCCL itself.
//
// As NcclApi; `symbols` lives as long as this.

#pragma once

#include "ops/comm/nccl/nccl_api.h"
#include "ops/comm/nccl/nccl_symbols.h"

namespace chainmail::ops {

class NcclLibrary final : public NcclApi {
 public:
  explicit NcclLibrary(const NcclSymbols& symbols) : nccl_(symbols) {}

  int version() const noexcept override { return nccl_.version; }
  NcclCode make_id(NcclId& id) noexcept override;
  NcclCode init(NcclHandle& comm, int size, const NcclId& id, int rank,
                const NcclConfig& config) noexcept override;
  /// `child` is written, perhaps by a thread of NCCL's, until `parent` has settled or was aborted.
  NcclCode split(NcclHandle parent, int color, int key, NcclHandle& child,
                 const NcclConfig& config) noexcept override;
  NcclCode finalize(NcclHandle comm) noexcept override;
  NcclCode destroy(NcclHandle comm) noexcept override;
  NcclCode abort(NcclHandle comm) noexcept override;
  NcclCode async_error(NcclHandle comm, NcclCode& state) noexcept override;
  NcclCode group_start() noexcept override;
  NcclCode group_end() noexcept override;
  NcclCode all_reduce(const void* source, void* target, std::size_t count, DataType type,
                      ReduceOp op, NcclHandle comm, DeviceStream stream) noexcept override;
  NcclCode reduce(const void* source, void* target, std::size_t count, DataType type, ReduceOp op,
                  int root, NcclHandle comm, DeviceStream stream) noexcept override;
  NcclCode reduce_scatter(const void* source, void* target, std::size_t count, DataType type,
                          ReduceOp op, NcclHandle comm, DeviceStream stream) noexcept override;
  NcclCode all_gather(const void* source, void* target, std::size_t bytes, NcclHandle comm,
                      DeviceStream stream) noexcept override;
  NcclCode broadcast(const void* source, void* target, std::size_t bytes, int root, NcclHandle comm,
                     DeviceStream stream) noexcept override;
  NcclCode send(const void* source, std::size_t bytes, int peer, NcclHandle comm,
                DeviceStream stream) noexcept override;
  NcclCode receive(void* target, std::size_t bytes, int peer, NcclHandle comm,
                   DeviceStream stream) noexcept override;
  NcclCode allocate(void*& memory, std::size_t bytes) noexcept override;
  /// Waits for the current device, which must be the one that the memory is of.
  void free(void* memory) noexcept override;
  NcclCode register_memory(NcclHandle comm, void* memory, std::size_t bytes,
                           void*& registration) noexcept override;
  NcclCode deregister_memory(NcclHandle comm, void* registration) noexcept override;
  std::string describe(NcclCode code, NcclHandle comm) const override;

 private:
  const NcclSymbols& nccl_;
};

}  // namespace chainmail::ops
