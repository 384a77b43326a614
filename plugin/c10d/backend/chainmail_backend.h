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
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ops/core/rendezvous.h"
#include "ops/engine/group.h"
#include "ops/engine/plan/plan.h"
#include "plugin/c10d/backend/options.h"
#include "plugin/c10d/compat.h"
#include "plugin/c10d/device/device_lane.h"
#include "plugin/c10d/work/api.h"
#include "plugin/c10d/work/deferred_operation.h"
#include "plugin/c10d/work/self_transfers.h"
#include "plugin/c10d/work/work.h"

namespace chainmail::internal {

class ChainmailBackend final : public c10d::Backend {
 public:
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  /// `board` is the group's own; `options` are those that it was made with. `make_device_group`:
  /// unset, that of the CUDA library.
  ChainmailBackend(std::shared_ptr<ops::Group> group, std::shared_ptr<ops::Rendezvous> board,
                   BackendOptions options, std::vector<std::uint64_t> global_ranks,
                   DeviceLanes::Maker make_device_group = {});
  ~ChainmailBackend() override;

  /// Forgets the group's name in c10d's registry when this object goes.
  void unregister_when_gone() noexcept { is_registered_ = true; }

  /// What killed the group; null while it is alive.
  [[nodiscard]] std::exception_ptr error() const { return group_->error(); }

  /// The all-reduce behind torch.ops.chainmail.*. Blocks; on a GPU the current stream does.
  void all_reduce(const at::Tensor& tensor, ops::ReduceOp op,
                  std::optional<ops::Algorithm> algorithm, std::optional<ops::WireFormat> wire);

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
  /// tells all of them who is missing (all that are, with `wait_all_ranks`; else the first).
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  /// Until endCoalescing, the calling thread's collectives begin without being waited for, and its
  /// sends and receives not at all. A batch that the thread has left open is given up.
  void startCoalescing() override;
  /// Begins the sends and receives. One Work for all operations. Throws the first mistake in a send
  /// or receive: torch's state of a batch does not survive an exception inside it. None of them has
  /// begun then.
  WorkPtr endCoalescing() override;

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
  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}  // every group counts from 0
  std::uint64_t getSequenceNumberForGroup() override { return group_->sequence(); }
  void enableCollectivesTiming() override {}  // the profiler has the times

 private:
  /// How a call is to run, whatever options struct it came in.
  struct Call {
    const Api& api;
    std::chrono::milliseconds timeout = c10d::kUnsetTimeout;
    bool is_async = true;
  };
  using PayloadPtr = std::shared_ptr<Payload>;
  /// What the coalescing thread has called since startCoalescing, for CPU tensors.
  struct Coalesced {
    struct Deferred {
      ops::Collective collective;
      std::shared_ptr<DeferredOperation> operation;
    };
    std::vector<c10::intrusive_ptr<ChainmailWork>> works;  // of all operations
    std::vector<Deferred> transfers;
    std::exception_ptr mistake;  // the first
  };
  /// Sends and receives of GPU tensors must reach NCCL together, or they wait for each other.
  struct CoalescedOnDevice {
    std::shared_ptr<const DeviceLane> lane;  // null: none yet
    std::vector<ops::Collective> transfers;
    std::vector<PayloadPtr> payloads;  // of the transfers
    Tensors inputs;
    WorkPtr last;  // of the other operations
  };

  /// Hands the operation to the engine; waits for it when the call is not asynchronous. `inputs`
  /// are for the profiler.
  WorkPtr launch(const Call& call, at::TensorList inputs, ops::Collective collective,
                 PayloadPtr payload);
  /// The same with several operations, which nobody else's come between.
  WorkPtr launch_all(const Call& call, at::TensorList inputs,
                     std::vector<ops::Collective> collectives, PayloadPtr payload);
  [[nodiscard]] PayloadPtr make_payload(Tensors results) const;
  void complete(const Call& call, const PayloadPtr& payload, ops::Collective& collective) const;
  void check(const ops::Collective& collective) const;
  std::shared_ptr<ops::Operation> submit(ops::Collective&& collective);
  WorkPtr started(const Call& call, std::uint64_t sequence, PayloadPtr payload,
                  std::shared_ptr<ops::Operation> operation);
  bool is_coalescing() const;
  /// The same for tensors on a GPU, in devices.cc.
  WorkPtr launch_on_device(const Call& call, at::TensorList inputs, ops::Collective collective,
                           const PayloadPtr& payload);
  WorkPtr queue(const Call& call, const DeviceLane& lane,
                std::span<const ops::Collective> collectives, std::span<const PayloadPtr> payloads,
                Tensors inputs);
  WorkPtr end_coalescing_on_device(CoalescedOnDevice coalesced);
  std::shared_ptr<ops::DeviceGroup> make_device_group(c10::Device device, int number);

  /// What `start` does; in a batch, its mistakes are kept for endCoalescing.
  template <typename Start>
  WorkPtr in_batch(const Api& api, const Start& start) {
    if (!is_coalescing()) return start();
    try {
      return start();
    } catch (...) {
      return refuse_in_batch(api, std::current_exception());
    }
  }
  WorkPtr refuse_in_batch(const Api& api, std::exception_ptr mistake);
  WorkPtr defer(const Call& call, at::TensorList inputs, ops::Collective collective,
                PayloadPtr payload);
  void refuse(const Coalesced& coalesced, const std::exception_ptr& error) const;
  void give_up_batch(const std::string& reason);
  WorkPtr receive(const Api& api, const Tensors& tensors, int source, int tag);
  bool is_to_self(const ops::Collective& collective) const noexcept {
    return ops::is_point_to_point(collective.kind) && collective.root == rank_;
  }
  WorkPtr start_reduce_scatter(const Call& call, const at::Tensor& input, const Tensors& inputs,
                               const Tensors& outputs, const c10d::ReduceOp& op);
  WorkPtr start_uneven_reduce_scatter(const Call& call, const Tensors& inputs,
                                      const at::Tensor& output, const c10d::ReduceOp& op);
  WorkPtr start_uneven_all_gather(const Call& call, const at::Tensor& input, const Tensors& parts);
  WorkPtr start_all_gather(const Call& call, const Tensors& inputs, const Tensors& parts,
                           PayloadPtr payload);
  c10::intrusive_ptr<c10d::Backend> make_sibling(const c10::intrusive_ptr<c10d::Store>& store,
                                                 int rank, int size,
                                                 const c10::intrusive_ptr<Options>& opts,
                                                 BackendOptions options);
  int global_rank(int rank) const {
    return static_cast<int>(global_ranks_[static_cast<std::size_t>(rank)]);
  }
  void check_rank(std::int64_t rank, const char* what) const;
  /// For what goes on after shutdown() unless it is refused: waiting for who has left.
  void check_open(const std::string& operation) const;
  std::chrono::milliseconds limit_of(std::chrono::milliseconds asked) const;
  std::size_t size() const noexcept { return static_cast<std::size_t>(size_); }

  const std::shared_ptr<ops::Group> group_;
  const std::shared_ptr<ops::Rendezvous> board_;
  const BackendOptions options_;
  const std::vector<std::uint64_t> global_ranks_;
  std::atomic<std::chrono::milliseconds> timeout_;
  bool is_registered_ = false;
  std::atomic<bool> is_shut_down_{false};
  std::mutex several_mutex_;  // for launch_all
  std::atomic<std::uint64_t> monitored_barriers_{0};
  std::atomic<std::thread::id> coalescing_thread_;  // none: nobody is coalescing
  Coalesced coalesced_;                             // that thread's alone
  CoalescedOnDevice coalesced_on_device_;           // as coalesced_
  std::atomic<std::uint64_t> device_sequence_{0};
  const std::shared_ptr<SelfTransfers> self_transfers_;
  DeviceLanes lanes_;
};

}  // namespace chainmail::internal
