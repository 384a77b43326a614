// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The calls of a P2pComm that are under way: starts their pieces, moves them forward, waits for
// them, and ends all of them when one fails.
//
// Not thread-safe, except interrupt(). After an error every function but give_back() and
// progress() throws it again.

#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "ops/comm/comm.h"
#include "ops/comm/p2p/plan.h"
#include "ops/comm/p2p/schedules/schedule.h"
#include "ops/comm/transport.h"

namespace chainmail::ops {

/// A call: pieces in order, a window of them at once.
struct Call {
  CollectiveArgs args;
  OpContext context{{}, internal::Deadline::after(std::chrono::milliseconds{0}), nullptr, {}};
  ScheduleKind kind = ScheduleKind::kBarrier;
  std::vector<std::unique_ptr<Schedule>> running;
  std::size_t next_piece = 0;
  std::size_t piece_count = 0;
  bool is_done = false;
  /// Where the handle of a started call lives: starting one takes no memory of its own.
  alignas(std::max_align_t) std::array<std::byte, 4 * sizeof(void*)> handle_memory;
};

class CallQueue {
 public:
  /// How far a call may be ahead of the oldest unfinished one; bounds what comes early at a peer.
  static constexpr std::uint64_t kMaxCallsAhead = 8;

  CallQueue(Transport& transport, ProgressTracker& tracker, const P2pOptions& options);

  /// A call to be filled in and launched, or given back.
  Call& take(const OpContext& context);
  void give_back(Call& call) noexcept;
  void launch(Call& call, ScheduleKind kind);
  /// launch(), wait() and give_back().
  void run(Call& call, ScheduleKind kind);
  void wait(Call& call);
  bool test(Call& call);
  /// Moves everything forward; keeps errors for the calls they belong to.
  void progress() noexcept;
  /// Ends everything with `error`, unless it has ended.
  void fail(const std::exception_ptr& error, FailureState* failure) noexcept;
  bool has_failed() const noexcept { return error_ != nullptr; }
  /// From any thread: what waits here ends.
  void interrupt() noexcept;
  bool has_met_non_finite() const noexcept { return has_met_non_finite_; }

 private:
  template <typename IsDone, typename VisitPending>
  void wait_until(const OpContext& context, const IsDone& is_done, const VisitPending& visit);
  void wait_for_room(const Call& call);
  void adapt_spin(std::chrono::nanoseconds idle);
  bool step();
  void note_progress() noexcept;
  bool advance(Call& call);
  bool start_piece(Call& call, std::unique_ptr<Schedule>& schedule);
  void check(const OpContext& context);
  [[noreturn]] void give_up(const OpContext& context);
  std::exception_ptr late(const OpContext& context, std::vector<int> peers) const;
  std::unique_ptr<Schedule> take_schedule(ScheduleKind kind);

  Transport& transport_;
  ProgressTracker& tracker_;
  TransportCounters seen_;  ///< by note_progress()
  P2pOptions options_;
  std::uint64_t next_position_ = 0;
  /// How long to look before sleeping: all of P2pOptions::spin where that would have brought
  /// something the last time, less and less where it would not, as on a slow wire.
  std::chrono::microseconds spin_;
  std::vector<Call*> active_;  ///< in the order in which they were started
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<Call*> free_calls_;
  std::array<std::vector<std::unique_ptr<Schedule>>, kScheduleKindCount> free_schedules_;
  bool is_dirty_ = false;  ///< transfers may have finished outside of Transport::progress()
  bool has_met_non_finite_ = false;
  std::exception_ptr error_;
  std::atomic<bool> is_interrupted_{false};
};

}  // namespace chainmail::ops
