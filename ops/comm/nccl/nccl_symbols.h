// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// NCCL's functions as found at run time in the copy that this process has loaded.
//
// A plain value; any thread.

#pragma once

#include <nccl.h>

#include <memory>
#include <string>

#include "ops/comm/nccl/nccl_api.h"

namespace chainmail::ops {

struct NcclSymbols {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclAllReduce) all_reduce = nullptr;
  decltype(&ncclReduce) reduce = nullptr;
  decltype(&ncclReduceScatter) reduce_scatter = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  // Null where the version has none.
  decltype(&ncclCommSplit) split = nullptr;            // 2.18
  decltype(&ncclMemAlloc) mem_alloc = nullptr;         // 2.19
  decltype(&ncclMemFree) mem_free = nullptr;           // 2.19
  decltype(&ncclCommRegister) reg = nullptr;           // 2.19
  decltype(&ncclCommDeregister) deregister = nullptr;  // 2.19
  int version = 0;
  std::string path;
};

/// Looks for the libnccl.so.2 that libtorch_cuda has loaded, never loading a second copy beside it.
/// Returns what is missing in one sentence; empty when all needed functions are there.
[[nodiscard]] std::string find_nccl(NcclSymbols& symbols);

/// NcclApi over them; they must live as long.
[[nodiscard]] std::unique_ptr<NcclApi> make_nccl(const NcclSymbols& symbols);

}  // namespace chainmail::ops
