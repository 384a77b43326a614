// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Progress of a group's sends and receives over one Transport. All of them progress at once,
// whatever they wait for: whoever waits for one drives all. A thread drives those that nobody waits
// for; it starts when there are some and ends when there have been none for a while.
//
// Thread-safe. Callbacks run in threads of the executor: whoever moves transfers may be an
// unrelated waiter with locks of its own.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "base/threads/progress_thread.h"
#include "ops/engine/callbacks/callback_executor.h"
#include "ops/engine/transfers/transfer.h"

namespace chainmail::ops {

/// Who can be reached over a Transport, and how it is made.
struct TransferEnginePlan {
  std::function<std::unique_ptr<Transport>()> make;  ///< called when first needed
  std::vector<int> ranks;                            ///< of the group, in the Transport's numbering
  std::vector<bool> is_served;  ///< false: this rank, or one that another engine serves
  bool serves_all = true;       ///< no rank of the group is served by another engine
};

class TransferEngine final : public std::enable_shared_from_this<TransferEngine> {
 public:
  /// Called, in any thread, with the error that has broken the Transport and a transfer that had
  /// it. Is to end in fail_all().
  using OnBroken = std::function<void(const PlannedOperation&, const std::exception_ptr&)>;
  using OperationPtr = std::shared_ptr<TransferOperation>;

  TransferEngine(TransferEnginePlan plan, std::shared_ptr<CallbackExecutor> executor,
                 OnBroken on_broken);
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;
  ~TransferEngine();

  /// False for this rank and for those that another engine serves.
  bool serves(int rank) const { return numbers_.count(rank) > 0; }

  /// Begins a send or receive. Throws InvalidArgument after close() and the error of fail_all().
  void submit(const OperationPtr& operation);
  /// Moves transfers until `operation` is done. False when `limit` passed first.
  bool wait(const TransferOperation& operation, std::chrono::milliseconds limit);
  /// Lets the thread drive transfers that nobody waits for; false when none can be had.
  bool call_thread();

  /// Ends all transfers, and all later ones, with `error`.
  void fail_all(const std::exception_ptr& error);
  /// Waits until all sends have ended, and receives whose messages are coming; false when `limit`
  /// passed first. What a receive waits for may never have been sent: that is not waited for.
  bool drain(std::chrono::milliseconds limit);
  /// Later submits throw; what has begun goes on.
  void close();
  /// Ends the thread and, with an error, sends that are left.
  void stop();
  /// After stop(): parts from the peers. Receives that are left end with an error.
  void disconnect() noexcept;
  /// In a forked child, where the thread does not exist and the connections are the parent's.
  void leak() noexcept;

  /// Transfers under way, at most `most` of them.
  void list_pending(std::vector<std::shared_ptr<PlannedOperation>>& list, std::size_t most) const;
  /// The latest transfers that ended.
  void list_past(std::vector<PastOperation>& list) const;

 private:
  using Clock = std::chrono::steady_clock;
  /// A transfer that has had no traffic for so long asks after its peer.
  static constexpr std::chrono::milliseconds kFirstInquiry{100};
  using Lock = std::unique_lock<std::mutex>;
  /// What came of moving transfers, to be told without the lock.
  struct Outcome {
    std::vector<OperationPtr> ended;
    std::exception_ptr error;  ///< of those that ended; when `failed` is set, of that one alone
    OperationPtr failed;       ///< has met `error`, which broke the Transport
  };

  Lock enter() const;
  template <typename IsDone>
  bool work_until(Lock& lock, Clock::time_point limit, const IsDone& is_done);
  Outcome step(Lock& lock, Clock::time_point limit);
  void sleep(Lock& lock, Clock::time_point limit);
  void tell(Lock& lock, Outcome outcome);
  void break_down(Outcome& outcome);
  void begin(const OperationPtr& operation, Outcome& outcome);
  void join_channel(TransferOperation& operation, int number);
  void post(TransferOperation& operation);
  void admit();
  void match_open_receives();
  int find_sender(const TransferOperation& operation);
  void collect(std::vector<OperationPtr>& ended);
  Outcome take_all(const std::exception_ptr& error);
  void end_all(Lock& lock, const std::exception_ptr& error);
  void look_after(Clock::time_point now);
  void look_for_lost_senders();
  std::optional<PeerError> find_lost_senders();
  TransferOperation* take_open(std::list<OperationPtr>::iterator place);
  std::string list_senders() const;
  [[noreturn]] void give_up(TransferOperation& operation, bool is_open);
  Clock::time_point next_deadline() const;
  bool has_sends() const;
  bool is_any_under_way() const;
  bool has_work() const noexcept { return !pending_.empty() || !open_.empty(); }
  bool can_step() const noexcept {
    return !is_driven_ && !is_parting_ && (!is_broken_ || failure_ != nullptr);
  }
  bool can_drive() const noexcept { return has_work() && can_step() && waiters_ == 0; }
  bool call_thread(bool is_urgent);
  void work();

  const TransferEnginePlan plan_;
  const std::shared_ptr<CallbackExecutor> executor_;
  const OnBroken on_broken_;
  std::unordered_map<int, int> numbers_;  // of the group's ranks, in the Transport

  mutable std::atomic<int> visitors_{0};  // who want the mutex while somebody moves transfers
  mutable std::mutex mutex_;
  std::condition_variable changed_;  // transfers ended, or the driver has left
  std::unique_ptr<Transport> transport_;
  std::list<OperationPtr> pending_;  // with a known peer, in call order
  std::list<OperationPtr> open_;     // receives from any rank
  std::vector<OperationPtr> new_;    // of pending_, submitted while somebody slept in the Transport
  std::vector<OperationPtr> dropped_;  // another engine has taken them; let go of without the lock
  std::unordered_map<std::uint64_t, Channel> sends_;     // by peer and tag
  std::unordered_map<std::uint64_t, Channel> receives_;  // by peer and tag
  std::vector<PastOperation> past_;
  std::size_t past_count_ = 0;
  const TransferOperation* culprit_ = nullptr;  // on whose behalf the Transport is being called
  std::exception_ptr failure_;
  std::exception_ptr untold_;  // has broken the Transport when no transfer could be ended with it
  Clock::time_point last_move_{};
  Clock::time_point next_look_{};  // at what takes long, when there is no rest
  std::uint64_t seen_messages_ = 0;
  std::size_t next_sender_ = 0;  // where the search for a sender begins, so that all get their turn
  int waiters_ = 0;              // callers of wait() and drain()
  bool is_driven_ = false;       // somebody is in step()
  bool is_sleeping_ = false;     // ... and in the Transport, without the lock
  bool is_expecting_all_ = false;
  bool is_broken_ = false;  // the Transport is of no use any more
  bool is_closed_ = false;
  bool is_parting_ = false;  // no more progress: the Transport is about to be closed
  bool is_urgent_ = false;
  bool has_warned_ = false;
  bool is_leaked_ = false;
  internal::ProgressThread thread_;
};

}  // namespace chainmail::ops
