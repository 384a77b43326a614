// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One rank's end of a group: its parts, and what happens to it when something fails.
//
// Thread-safe. Held by the handles of users and, while they run, by the group's threads.

#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ops/core/failure/failure_news.h"
#include "ops/core/failure/failure_state.h"
#include "ops/core/group_options.h"
#include "ops/core/operation.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/callbacks/callback_executor.h"
#include "ops/engine/collectives/dispatch.h"
#include "ops/engine/collectives/queue.h"
#include "ops/engine/comms/comm_set.h"
#include "ops/engine/failure/diagnosis.h"
#include "ops/engine/failure/watchdog.h"
#include "ops/engine/group.h"
#include "ops/engine/transfers/transfers.h"
#include "ops/topology.h"

namespace chainmail::ops {

class GroupCore final : public Group, public std::enable_shared_from_this<GroupCore> {
 public:
  GroupCore(int rank, Topology topology, const std::shared_ptr<Rendezvous>& rendezvous,
            GroupOptions options, std::vector<int> global_ranks, std::shared_ptr<FailureNews> news,
            const CommFactory& factory);
  ~GroupCore() override;
  GroupCore(const GroupCore&) = delete;
  GroupCore& operator=(const GroupCore&) = delete;

  /// Second half of construction, once a shared_ptr exists.
  void start(const CommFactory& factory, const std::shared_ptr<Rendezvous>& rendezvous);

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return topology_.size(); }
  const Topology& topology() const noexcept override { return topology_; }
  const GroupOptions& options() const noexcept override { return options_; }
  std::shared_ptr<Operation> submit(Collective collective) override;
  void run(const Collective& collective) override;
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void abort(std::exception_ptr error) override { fail({std::move(error)}); }
  void shutdown() override;
  std::exception_ptr error() const override { return failure_->error(); }
  void on_failure(std::function<void(const std::exception_ptr&)> listener) override {
    failure_->on_failure(std::move(listener));
  }
  std::uint64_t sequence() const noexcept override { return queue_->submitted(); }
  void set_timeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  std::shared_ptr<CallbackExecutor> callbacks() const override { return callbacks_; }

 private:
  /// Makes the group dead. The other ranks are told, once, unless they know.
  void fail(const Finding& finding);
  Plan plan(const Collective& collective);
  void measure_once(const Collective& collective);
  std::chrono::milliseconds limit_of(const Collective& collective) const noexcept;
  bool attempt(const Collective& collective, const Plan& plan) noexcept;
  void carry_out(QueuedOperation& operation);
  /// With the failure as an operation called `title` tells it.
  void throw_if_failed(const std::string& title);
  void find_cause(const PlannedOperation& operation, const std::exception_ptr& error);
  void look(const std::vector<LongOperation>& operations);
  Activity activity() const;
  void end_waits(const std::exception_ptr& error);
  void fail_transfers_if_failed();
  bool drain(const internal::Deadline& deadline);
  bool is_forked_child() const noexcept;
  void tell_choice(const Collective& collective, const Plan& plan);

  const int rank_;
  const Topology topology_;
  GroupOptions options_;  // `tuning` may be written once, before the first operation that needs it
  std::atomic<std::chrono::milliseconds> timeout_;
  const std::vector<int> global_ranks_;
  const std::shared_ptr<FailureNews> news_;
  ProgressCounter* const progress_;  // of news_; may be null
  const unsigned fork_count_;        // of the process, when the group was made
  /// The group's failure: what every caller gets. News from outside arrives here.
  const std::shared_ptr<FailureState> failure_ = std::make_shared<FailureState>();
  /// What the Comms look at and set. Apart from failure_, so that a Comm's "connection closed" can
  /// be replaced by the reason before anybody sees it.
  const std::shared_ptr<FailureState> comm_failure_ = std::make_shared<FailureState>();
  ProgressTracker tracker_;  // of the collectives; for the thread that runs one
  CommSet comms_;
  Dispatcher dispatcher_;
  const std::shared_ptr<CallbackExecutor> callbacks_ = std::make_shared<CallbackExecutor>();
  const std::shared_ptr<OperationQueue> queue_;
  std::shared_ptr<Transfers> transfers_;
  Diagnosis diagnosis_;
  std::shared_ptr<Watchdog> watchdog_;
  std::atomic<bool> is_explaining_{false};
  std::atomic<bool> is_announced_{false};
  std::atomic<bool> is_shut_down_{false};
  std::once_flag measured_;
  std::mutex choices_mutex_;
  std::set<Algorithm> told_choices_;
};

}  // namespace chainmail::ops
