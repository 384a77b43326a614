// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sends of a rank to itself, as torch's isend and irecv and batches of them allow: a copy, made
// when both sides have been called. The n-th send with a tag matches the n-th receive with it.
//
// They fail as those between ranks do: one whose other side is not called within its time limit,
// and two that differ in length, fail their group, and with the group all of them fail. A thread
// checks that while some are waiting, and for about 2 s more.
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

  /// Throws InvalidArgument that names `who` in a forked child.
  void check_process(const std::string& who) const;
  /// Ends waiting transfers that are late, or all of them if the group has failed. Called often by
  /// the thread and by callers that wait.
  void look();
  /// Ends all waiting transfers with `error`.
  void fail_all(const std::exception_ptr& error);
  /// The same on shutdown, and ends the thread; later submits throw. Idempotent.
  void close();

 private:
  using TransferPtr = std::shared_ptr<SelfTransfer>;
  /// The waiting transfers with one tag: all sends, or all receives.
  struct TagQueue {
    std::deque<TransferPtr> waiting;
    std::chrono::steady_clock::time_point last_end{};  ///< of the latest match
  };

  TransferPtr match(const TransferPtr& mine);
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
  std::map<std::uint32_t, TagQueue> queues_;  // by tag, none of them empty
  bool is_closed_ = false;
  bool has_warned_ = false;
  std::thread thread_;
};

}  // namespace chainmail::internal
