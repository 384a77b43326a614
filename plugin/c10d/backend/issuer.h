// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The path of every operation from a c10d call into the engine, alone or in a batch
// (startCoalescing), for tensors on CPUs and on GPUs.
//
// Thread rule: any thread; a batch belongs to the thread that began it. Mistakes throw c10::Error.

#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ops/engine/plan/plan.h"
#include "plugin/c10d/backend/device_issuer.h"
#include "plugin/c10d/backend/group_context.h"
#include "plugin/c10d/work/api.h"
#include "plugin/c10d/work/deferred_operation.h"
#include "plugin/c10d/work/self_transfers.h"
#include "plugin/c10d/work/work.h"

namespace chainmail::internal {

class Issuer {
 public:
  /// `group` outlives this object.
  Issuer(GroupContext& group, DeviceContexts::Maker make_device_group);
  /// Gives up an open batch.
  ~Issuer();

  GroupContext& group() const noexcept { return group_; }
  DeviceContexts& device_contexts() noexcept { return devices_.contexts(); }

  /// Hands the operation to the engine; waits for it when the call is not asynchronous. `inputs`
  /// are for the profiler, and say on which device the operation runs.
  WorkPtr issue(const Call& call, at::TensorList inputs, ops::Collective collective,
                PayloadPtr payload);
  /// The same for several operations on CPU tensors, with none of other threads in between.
  WorkPtr issue_all(const Call& call, at::TensorList inputs,
                    std::vector<ops::Collective> collectives, PayloadPtr payload);

  /// Until end_batch(), the calling thread's collectives begin without being waited for, and its
  /// sends and receives do not begin. A batch that this thread has left open is given up.
  void begin_batch();
  /// Begins the sends and receives; one Work for all operations. Throws the first mistake that
  /// in_batch() has caught, and then none of them begins.
  WorkPtr end_batch();
  /// What `start` does. In a batch, its mistakes are kept for end_batch(): torch's state of a batch
  /// does not survive an exception inside it.
  template <typename Start>
  WorkPtr in_batch(const Api& api, const Start& start) {
    if (!is_in_batch()) return start();
    try {
      return start();
    } catch (...) {
      return refuse(api, std::current_exception());
    }
  }

  /// Ends transfers of this rank with itself where the group has failed.
  void check_self_transfers() { self_transfers_->look(); }
  /// Before the group's: gives up the calling thread's batch and ends what waits here.
  void shutdown();

 private:
  struct Batch {
    struct Transfer {
      ops::Collective collective;
      std::shared_ptr<DeferredOperation> operation;
    };
    std::vector<c10::intrusive_ptr<ChainmailWork>> works;  // of all operations on the CPU
    std::vector<Transfer> transfers;
    std::exception_ptr mistake;  // the first
    DeviceBatch on_device;
  };

  bool is_in_batch() const {
    return batch_thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  bool is_to_self(const ops::Collective& collective) const noexcept {
    return ops::is_point_to_point(collective.kind) && collective.root == group_.rank;
  }
  void complete(const Call& call, const PayloadPtr& payload, ops::Collective& collective) const;
  std::shared_ptr<ops::Operation> submit(ops::Collective&& collective);
  WorkPtr defer(const Call& call, at::TensorList inputs, ops::Collective collective,
                PayloadPtr payload);
  WorkPtr started(const Call& call, std::uint64_t sequence, PayloadPtr payload,
                  std::shared_ptr<ops::Operation> operation);
  c10::intrusive_ptr<ChainmailWork> make_work(const Api& api, std::uint64_t sequence,
                                              PayloadPtr payload,
                                              std::shared_ptr<ops::Operation> operation) const;
  WorkPtr refuse(const Api& api, std::exception_ptr mistake);
  Batch take_batch();
  void refuse_transfers(const Batch& batch, const std::exception_ptr& error) const;
  void give_up_batch(const std::string& reason);

  GroupContext& group_;
  DeviceIssuer devices_;
  const std::shared_ptr<SelfTransfers> self_transfers_;
  std::mutex several_mutex_;                   // for issue_all
  std::atomic<std::thread::id> batch_thread_;  // none: no batch is open
  Batch batch_;                                // that thread's alone
};

}  // namespace chainmail::internal
