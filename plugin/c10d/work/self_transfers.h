// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Sends of a rank to itself, as torch's isend and irecv and batches of them allow: a copy, made
// when both sides have been called. The n-th send with a tag meets the n-th receive with it.
//
// Thread-safe. Callbacks run where those of the group do.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "ops/engine/callbacks/callback_executor.h"
#include "ops/engine/group.h"

namespace chainmail::internal {

class SelfTransfer;

class SelfTransfers {
 public:
  /// `executor` runs callbacks.
  SelfTransfers(int rank, std::shared_ptr<ops::CallbackExecutor> executor)
      : rank_(rank), executor_(std::move(executor)) {}
  SelfTransfers(const SelfTransfers&) = delete;
  SelfTransfers& operator=(const SelfTransfers&) = delete;
  /// Ends those that have not met with a PeerError, so that nobody waits for ever.
  ~SelfTransfers();

  /// `collective` is a kSend or kRecv with a timeout. Throws InvalidArgument, and takes no notice
  /// of the call, when its other side has another length.
  [[nodiscard]] std::shared_ptr<ops::Operation> submit(const ops::Collective& collective);

 private:
  /// Those that wait for their other side: all sends, or all receives.
  using Waiting = std::deque<std::shared_ptr<SelfTransfer>>;

  const int rank_;
  const std::shared_ptr<ops::CallbackExecutor> executor_;
  std::mutex mutex_;
  std::map<std::uint32_t, Waiting> by_tag_;
};

}  // namespace chainmail::internal
