// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// c10d's Backend over an engine group, for tensors on CPUs and on GPUs: one object for both.
//
// Thread rule: any thread; operations run in call order. Collective rule as in c10d. Argument
// mistakes throw c10::Error before anything is sent; failures of the group throw Chainmail's own
// errors from wait(), and the group is dead afterwards. Overrides keep c10d's names. What is not
// overridden (shrink, completion hooks, timing, memory pools) has c10d's own refusal.

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
#include "plugin/c10d/backend/group_context.h"
#include "plugin/c10d/backend/issuer.h"
#include "plugin/c10d/backend/options.h"
#include "plugin/c10d/compat.h"

namespace chainmail::internal {

class ChainmailBackend final : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  /// `rendezvous` is the group's own; `options` are those that it was made with.
  /// `make_device_group`: unset, that of the CUDA library.
  ChainmailBackend(std::shared_ptr<ops::Group> group, std::shared_ptr<ops::Rendezvous> rendezvous,
                   BackendOptions options, std::vector<std::uint64_t> global_ranks,
                   DeviceContexts::Maker make_device_group = {});
  ~ChainmailBackend() override;

  /// Removes the group's name from c10d's registry in the destructor.
  void unregister_when_gone() noexcept { is_registered_ = true; }

  /// What killed the group; null while it is alive.
  [[nodiscard]] std::exception_ptr error() const { return group_.group->error(); }

  /// Where an integer wire keeps what it rounds away: two rows of float32 on the CPU, each with as
  /// many elements as the tensor, contiguous and zeros at first.
  struct Feedback {
    at::Tensor residual;
    std::uint64_t exchanges = 0;  ///< since then
  };
  /// The all-reduce behind torch.ops.chainmail.*. Blocks; on a GPU the current stream does.
  void all_reduce(const at::Tensor& tensor, ops::ReduceOp op,
                  std::optional<ops::Algorithm> algorithm, std::optional<ops::WireFormat> wire,
                  const std::optional<Feedback>& feedback = std::nullopt);

  const std::string getBackendName() const override { return kBackendName; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPtr reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& opts) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& opts) override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPtr allgather(TensorLists& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& opts) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& opts) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& opts) override;
  WorkPtr gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPtr scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input,
                        std::vector<std::int64_t>& output_splits,
                        std::vector<std::int64_t>& input_splits,
                        const c10d::AllToAllOptions& opts) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;

  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  /// The Work's sourceRank() says whose message it was.
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  WorkPtr barrier(const c10d::BarrierOptions& opts) override;
  /// Over the store, so that it works while the group does not: rank 0 waits for the others and
  /// tells all of them which ranks are missing (with `wait_all_ranks` all, else the first).
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  /// See Issuer::begin_batch() and end_batch().
  void startCoalescing() override { issuer_.begin_batch(); }
  WorkPtr endCoalescing() override { return issuer_.end_batch(); }

  /// Null on ranks that are not among `ranks`. Collective over those that are.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<Options>& opts, const int& rank,
                                          const int& size) override;

  void abort() override;
  void shutdown() override;
  c10d::ErrorType getError() override;
  void setTimeout(std::chrono::milliseconds timeout) override { group_.set_timeout(timeout); }
  void setSequenceNumberForGroup() override {}  // every group counts from 0
  std::uint64_t getSequenceNumberForGroup() override { return group_.group->sequence(); }
  void enableCollectivesTiming() override {}  // the profiler has the times

 private:
  GroupContext group_;
  Issuer issuer_;
  bool is_registered_ = false;
  std::atomic<std::uint64_t> monitored_barriers_{0};
};

}  // namespace chainmail::internal
