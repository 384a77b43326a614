// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A send or receive of a group, from submit() to its end.
//
// Thread-safe as an Operation. What is marked as an engine's is guarded by the engine that has
// taken the transfer; a receive from any rank stands at several until one of them claims it.

#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "ops/comm/transport.h"
#include "ops/engine/plan/plan.h"

namespace chainmail::ops {

class Transfers;

/// What the transfers from one rank to another with one tag have in common.
struct Channel {
  std::uint64_t count = 0;                           ///< of the transfers so far
  std::chrono::steady_clock::time_point last_end{};  ///< of one of them
  std::chrono::steady_clock::time_point last_move{};
};

class TransferOperation final : public PlannedOperation {
 public:
  using Clock = std::chrono::steady_clock;

  TransferOperation(std::shared_ptr<Transfers> owner, Collective what, Plan how,
                    std::chrono::milliseconds limit)
      : PlannedOperation(std::move(what), std::move(how), limit), owner_(std::move(owner)) {}

  void wait(std::optional<std::chrono::milliseconds> limit = std::nullopt) override;
  void on_done(std::function<void()> callback) override;
  int source_rank() const noexcept override {
    return collective.kind == OpKind::kRecv && is_done() ? source_.load() : -1;
  }
  int peer_rank() const noexcept override {
    const int source = source_.load();
    return source >= 0 ? source : collective.root;
  }

  /// True once: for whoever may move its bytes or end it.
  bool claim() noexcept { return !is_claimed_.exchange(true); }
  bool is_claimed() const noexcept { return is_claimed_.load(); }
  /// Waits for who moves it; false when `limit` passed first.
  [[nodiscard]] bool sleep_until_done(std::chrono::milliseconds limit);
  /// Marks it done; for who has claimed it. Returns the callbacks, for the executor.
  [[nodiscard]] std::vector<std::function<void()>> end(std::exception_ptr error);

  // An engine's.
  bool is_send() const noexcept { return collective.kind == OpKind::kSend; }
  Transfer& transfer() noexcept {
    return is_send() ? static_cast<Transfer&>(send) : static_cast<Transfer&>(receive);
  }
  /// The transfers of a channel follow each other: the time of each begins with the end of the one
  /// before, and anew whenever something moves.
  Clock::time_point deadline() const {
    const auto last = std::max({submitted, channel->last_end, channel->last_move, last_move});
    return (receive.is_asked ? std::max(last, last_ahead) : last) + timeout;
  }
  /// That of a receive whose sender is not known. Several engines may have it, and any of them
  /// claim it at any moment: of the rest nobody but who has claimed it may look at anything.
  Clock::time_point open_deadline() const noexcept { return submitted + timeout; }
  /// To be called before deadline() is looked at.
  void look(Clock::time_point now) noexcept {
    const Transfer& what = transfer();
    if (std::exchange(seen_moves, what.moves) != what.moves) last_move = channel->last_move = now;
    if (std::exchange(seen_ahead, what.moves_ahead) != what.moves_ahead) last_ahead = now;
    moved_bytes = what.moved_bytes;
  }
  Send send;
  Receive receive;
  Channel* channel = nullptr;  ///< null while the sender is not known
  Clock::time_point submitted = Clock::now();
  Clock::time_point last_move{};
  Clock::time_point last_ahead{};
  std::uint64_t seen_moves = 0;  ///< of Transfer::moves
  std::uint64_t seen_ahead = 0;
  Clock::time_point next_inquiry{};
  std::chrono::milliseconds inquiry_pause{0};
  /// The rank at the other end; where that is open, of who has claimed it.
  void set_source(int rank) noexcept { source_.store(rank); }
  /// Not to be cut off when the group ends: a send, or a receive that something has come for.
  bool is_under_way() const noexcept { return is_send() || moved_bytes.load() > 0; }

 private:
  const std::shared_ptr<Transfers> owner_;
  std::atomic<bool> is_claimed_{false};
  std::atomic<int> source_{-1};
  std::mutex mutex_;
  std::condition_variable ended_;
  std::vector<std::function<void()>> callbacks_;  // guarded by mutex_
};

}  // namespace chainmail::ops
