// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// c10d's Backend over an engine group, for CPU tensors.
//
// Thread rule: any thread; operations run in call order. Collective rule as in c10d. Argument
// mistakes throw c10::Error before anything is sent; failures of the group throw Chainmail's own
// errors from wait(), and the group is dead afterwards. Overrides keep c10d's names.

#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/engine/group.h"
#include "plugin/c10d/backend/work.h"
#include "plugin/c10d/compat.h"

namespace chainmail::internal {

class ChainmailBackend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  ChainmailBackend(std::shared_ptr<ops::Group> group, std::string group_name);
  ~ChainmailBackend() override;

  /// Forgets `group_name` in c10d's registry when this object goes.
  void unregister_when_gone() noexcept { is_registered_ = true; }

  /// What killed the group; null while it is alive.
  [[nodiscard]] std::exception_ptr error() const { return group_->error(); }

  /// The all-reduce behind torch.ops.chainmail.*; blocks.
  void all_reduce(const at::Tensor& tensor, ops::ReduceOp op,
                  std::optional<ops::Algorithm> algorithm, std::optional<ops::WireFormat> wire);

  const std::string getBackendName() const override { return "chainmail"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;

  WorkPtr allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(std::vector<at::Tensor>& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& opts) override;

  WorkPtr allgather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(std::vector<std::vector<at::Tensor>>& outputs,
                              std::vector<at::Tensor>& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(std::vector<std::vector<at::Tensor>>& outputs, std::vector<at::Tensor>& inputs,
                 const c10d::GatherOptions& opts) override;
  WorkPtr scatter(std::vector<at::Tensor>& outputs, std::vector<std::vector<at::Tensor>>& inputs,
                  const c10d::ScatterOptions& opts) override;

  WorkPtr reduce_scatter(std::vector<at::Tensor>& outputs,
                         std::vector<std::vector<at::Tensor>>& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(std::vector<at::Tensor>& outputs,
                                          std::vector<at::Tensor>& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;

  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(std::vector<at::Tensor>& outputs, std::vector<at::Tensor>& inputs,
                   const c10d::AllToAllOptions& opts) override;

  WorkPtr send(std::vector<at::Tensor>& tensors, int destination, int tag) override;
  WorkPtr recv(std::vector<at::Tensor>& tensors, int source, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return group_->sequence(); }

 private:
  /// How a call is to run, whatever options struct it came in.
  struct Call {
    c10d::OpType type;
    std::chrono::milliseconds timeout;
    bool is_async;
  };

  /// Hands the operation to the engine; waits for it when the call is not asynchronous.
  WorkPtr launch(const Call& call, ops::Collective collective, std::shared_ptr<Payload> payload);
  WorkPtr all_reduce_list(const std::vector<at::Tensor>& tensors, const c10d::ReduceOp& op,
                          const Call& call, const char* what);
  /// `input` is flat: all of rank 0's parts, then all of rank 1's.
  WorkPtr start_reduce_scatter(const at::Tensor& input, const std::vector<at::Tensor>& outputs,
                               const c10d::ReduceOp& op, const Call& call, const char* what);
  /// `parts` are all of rank 0's results, then all of rank 1's; `results` what the caller knows.
  WorkPtr start_all_gather(const std::vector<at::Tensor>& inputs,
                           const std::vector<at::Tensor>& parts, std::vector<at::Tensor> results,
                           const Call& call, const char* what);
  void check_rank(std::int64_t rank, const char* what) const;
  std::size_t size() const noexcept { return static_cast<std::size_t>(size_); }

  const std::shared_ptr<ops::Group> group_;
  const std::string group_name_;
  std::atomic<std::chrono::milliseconds> timeout_;
  bool is_registered_ = false;
};

}  // namespace chainmail::internal
