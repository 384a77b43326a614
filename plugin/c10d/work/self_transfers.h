// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sends of a rank to itself, as torch's isend and irecv and batches of them allow: a copy, made
// when both sides have been called. The n-th send with a tag meets the n-th receive with it.
//
// They fail as those between ranks do: one whose other side is not called within its time limit,
// and two that differ in length, end their group; with the group they all end. A thread sees to it
// while some wait for their other side, and for about 2 s more.
//
// Thread-safe. Callbacks run where those of the group do.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ops/engine/callbacks/callback_executor.h"
#include "ops/engine/group.h"

namespace chainmail::internal {

class SelfTransfer;

class SelfTransfers final : public std::enable_shared_from_this<SelfTransfers> {
 public:
  /// `global_rank` is this rank's in the job, for messages.
  SelfTransfers(const std::shared_ptr<ops::Group>& group, int global_rank);
  SelfTransfers(const SelfTransfers&) = delete;
  SelfTransfers& operator=(const SelfTransfers&) = delete;
  ~SelfTransfers();

  /// `collective` is a kSend or kRecv with a timeout. Throws the error of a dead group, and
  /// InvalidArgument after close() or in a forked child.
  [[nodiscard]] std::shared_ptr<ops::Operation> submit(const ops::Collective& collective);

  /// Throws InvalidArgument on behalf of `who` in a forked child.
  void check_process(const std::string& who) const;
  /// Ends those that have not met, with the group's failure if there is one. Called often by the
  /// thread and by who waits for a transfer.
  void look();
  /// Ends those that have not met with `error`.
  void fail_all(const std::exception_ptr& error);
  /// The same because the group goes, and ends the thread; later submits throw. Idempotent.
  void close();

 private:
  using TransferPtr = std::shared_ptr<SelfTransfer>;
  /// Those with one tag that wait for their other side: all sends, or all receives.
  struct Lane {
    std::deque<TransferPtr> waiting;
    std::chrono::steady_clock::time_point last_end{};  ///< of the latest that has met it
  };

  TransferPtr meet(const TransferPtr& mine);
  TransferPtr take_late();
  std::vector<TransferPtr> take_all();
  std::exception_ptr fail_group(const std::exception_ptr& error);
  void start_thread();
  void run();
  bool is_forked() const noexcept;

  const std::weak_ptr<ops::Group> group_;
  const std::shared_ptr<ops::CallbackExecutor> executor_;
  const int rank_;
  const int global_rank_;
  const pid_t process_;
  std::mutex mutex_;
  std::condition_variable stop_;
  std::map<std::uint32_t, Lane> lanes_;  // by tag, with somebody waiting in each
  bool is_closed_ = false;
  bool has_warned_ = false;
  std::thread thread_;
};

}  // namespace chainmail::internal
