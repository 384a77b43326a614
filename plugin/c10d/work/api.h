// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The calls of c10d's Backend by name: in errors as c10d spells them, in profiles as Gloo's and
// NCCL's groups do, after "chainmail:".

#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>

namespace chainmail::internal {

struct Api {
  c10d::OpType type;
  const char* name;
  const char* title;
};

/// How a call is to run, whatever options struct it came in.
struct Call {
  const Api& api;
  std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
  bool is_async = true;
};

namespace api {

using c10d::OpType;

inline constexpr Api kAllReduce{OpType::ALLREDUCE, "allreduce", "chainmail:all_reduce"};
inline constexpr Api kAllReduceCoalesced{OpType::ALLREDUCE_COALESCED, "allreduce_coalesced",
                                         "chainmail:all_reduce"};
inline constexpr Api kAllReduceSparse{OpType::_ALLREDUCE_SPARSE, "allreduce_sparse",
                                      "chainmail:sparse_all_reduce"};
inline constexpr Api kReduce{OpType::REDUCE, "reduce", "chainmail:reduce"};
inline constexpr Api kReduceScatter{OpType::REDUCE_SCATTER, "reduce_scatter",
                                    "chainmail:reduce_scatter"};
inline constexpr Api kReduceScatterBase{OpType::_REDUCE_SCATTER_BASE, "_reduce_scatter_base",
                                        "chainmail:reduce_scatter"};
inline constexpr Api kReduceScatterCoalesced{OpType::COALESCED, "reduce_scatter_tensor_coalesced",
                                             "chainmail:reduce_scatter"};
inline constexpr Api kBroadcast{OpType::BROADCAST, "broadcast", "chainmail:broadcast"};
inline constexpr Api kAllGather{OpType::ALLGATHER, "allgather", "chainmail:all_gather"};
inline constexpr Api kAllGatherBase{OpType::_ALLGATHER_BASE, "_allgather_base",
                                    "chainmail:all_gather"};
inline constexpr Api kAllGatherLists{OpType::ALLGATHER_COALESCED, "allgather_coalesced",
                                     "chainmail:all_gather"};
inline constexpr Api kAllGatherCoalesced{OpType::COALESCED, "allgather_into_tensor_coalesced",
                                         "chainmail:all_gather"};
inline constexpr Api kGather{OpType::GATHER, "gather", "chainmail:gather"};
inline constexpr Api kScatter{OpType::SCATTER, "scatter", "chainmail:scatter"};
inline constexpr Api kAllToAllBase{OpType::ALLTOALL_BASE, "alltoall_base", "chainmail:all_to_all"};
inline constexpr Api kAllToAll{OpType::ALLTOALL, "alltoall", "chainmail:all_to_all"};
inline constexpr Api kSend{OpType::SEND, "send", "chainmail:send"};
inline constexpr Api kRecv{OpType::RECV, "recv", "chainmail:recv"};
inline constexpr Api kRecvAnySource{OpType::RECVANYSOURCE, "recvAnysource",
                                    "chainmail:recvAnySource"};
inline constexpr Api kBarrier{OpType::BARRIER, "barrier", "chainmail:barrier"};
inline constexpr Api kCoalesced{OpType::COALESCED, "endCoalescing", "chainmail:coalesced"};

}  // namespace api

}  // namespace chainmail::internal
