// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The sends and receives of a group, apart from its collectives: none waits for another, so two
// ranks may both receive before they send, and all ranks of a ring may send first. One engine
// serves the ranks of this node, another those of other nodes; a receive from any rank is posted to
// both.
//
// Thread-safe.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ops/engine/comms/comm_factory.h"
#include "ops/engine/transfers/transfer_engine.h"

namespace chainmail::ops {

class Transfers final : public std::enable_shared_from_this<Transfers> {
 public:
  /// Connects to nobody. `on_broken` as in TransferEngine.
  Transfers(int rank, const Topology& topology, const GroupOptions& options,
            const std::vector<int>& global_ranks, const CommFactory& factory,
            const std::shared_ptr<Rendezvous>& rendezvous,
            const std::shared_ptr<CallbackExecutor>& executor,
            const TransferEngine::OnBroken& on_broken);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;

  /// Begins a send or receive that was checked. Throws as TransferEngine::submit.
  [[nodiscard]] std::shared_ptr<TransferOperation> submit(Collective collective, Plan plan,
                                                          std::chrono::milliseconds timeout);
  /// Until `operation` is done; throws TimeoutError when `limit` passes first.
  void wait(TransferOperation& operation, std::optional<std::chrono::milliseconds> limit);

  /// As TransferEngine::drain(), for all engines.
  [[nodiscard]] bool drain(std::chrono::milliseconds limit);
  /// Calls a function of TransferEngine for all engines.
  template <typename Call, typename... Arguments>
  void for_all(Call call, const Arguments&... arguments) {
    for (const auto& engine : engines_) std::invoke(call, *engine, arguments...);
  }

  /// Some transfers that are under way: all, unless there are very many.
  [[nodiscard]] std::vector<std::shared_ptr<PlannedOperation>> pending() const;
  /// The latest that ended.
  [[nodiscard]] std::vector<PastOperation> past() const;

 private:
  std::vector<std::shared_ptr<TransferEngine>> engines_;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::uint64_t> open_counts_;  // receives from any rank, by tag
};

}  // namespace chainmail::ops
