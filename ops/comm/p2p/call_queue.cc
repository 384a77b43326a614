// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/p2p/call_queue.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"

namespace chainmail::ops {

CallQueue::CallQueue(Transport& transport, ProgressTracker& tracker, const P2pOptions& options)
    : transport_(transport), tracker_(tracker), options_(options), spin_(options.spin) {
  transport_.follow(tracker_);
}

Call& CallQueue::take(const OpContext& context) {
  check(context);
  if (free_calls_.empty()) {
    calls_.push_back(std::make_unique<Call>());
    free_calls_.push_back(calls_.back().get());
  }
  Call& call = *free_calls_.back();
  free_calls_.pop_back();
  call.context = context;
  call.args.header = context.header;
  call.args.parts.clear();
  call.args.inputs.clear();
  call.next_piece = call.piece_count = 0;
  call.is_done = false;
  return call;
}

void CallQueue::give_back(Call& call) noexcept {
  // Whoever drops a running call has failed the queue before: nothing refers to its transfers.
  call.running.clear();
  call.context.progress = nullptr;
  call.context.failure = nullptr;
  free_calls_.push_back(&call);
}

std::unique_ptr<Schedule> CallQueue::take_schedule(ScheduleKind kind) {
  auto& pool = free_schedules_[static_cast<std::size_t>(kind)];
  if (pool.empty()) return make_schedule(kind, transport_);
  auto schedule = std::move(pool.back());
  pool.pop_back();
  return schedule;
}

void CallQueue::launch(Call& call, ScheduleKind kind) {
  call.kind = kind;
  call.args.position = next_position_++;
  wait_for_room(call);
  try {
    transport_.begin(call.args.position, call.args.header);
    call.running.push_back(take_schedule(kind));
    call.piece_count = call.running.front()->piece_count(call.args);
    const auto window = static_cast<std::size_t>(std::max(options_.window, 1));
    while (call.running.size() < std::min(window, call.piece_count)) {
      call.running.push_back(take_schedule(kind));
    }
    active_.push_back(&call);
    for (auto& schedule : call.running) start_piece(call, schedule);
    is_dirty_ = true;
    step();
  } catch (...) {
    fail(std::current_exception(), call.context.failure);
    std::rethrow_exception(error_);
  }
}

bool CallQueue::start_piece(Call& call, std::unique_ptr<Schedule>& schedule) {
  if (call.next_piece == call.piece_count) {
    free_schedules_[static_cast<std::size_t>(call.kind)].push_back(std::move(schedule));
    return false;
  }
  schedule->start(call.args, call.next_piece++);
  schedule->advance();
  return true;
}

// True when a piece or the call came to its end.
bool CallQueue::advance(Call& call) {
  bool has_moved = false;
  for (auto& schedule : call.running) {
    if (!schedule || !schedule->advance()) continue;
    has_moved = true;
    has_met_non_finite_ |= schedule->has_met_non_finite();
    start_piece(call, schedule);
  }
  std::erase(call.running, nullptr);
  call.is_done = call.running.empty();
  return has_moved || call.is_done;
}

bool CallQueue::step() {
  const bool has_moved = transport_.progress();
  if (!has_moved && !is_dirty_) return false;
  note_progress();
  is_dirty_ = false;
  // Posting for one call may finish another's transfers.
  bool again = true;
  while (again) {
    again = false;
    for (Call* call : active_) again |= !call->is_done && advance(*call);
  }
  std::erase_if(active_, [](const Call* call) { return call->is_done; });
  return has_moved;
}

void CallQueue::note_progress() noexcept {
  const TransportCounters now = transport_.counters();
  if (now.moves == seen_.moves) return;
  tracker_.note(now.moved_bytes - seen_.moved_bytes);
  seen_ = now;
}

void CallQueue::progress() noexcept {
  if (error_ != nullptr) return;
  try {
    step();
  } catch (...) {
    fail(std::current_exception(), nullptr);
  }
}

void CallQueue::check(const OpContext& context) {
  if (error_ != nullptr) give_up(context);
  const bool has_failed = context.failure != nullptr && context.failure->has_failed();
  if (!has_failed && !is_interrupted_.load(std::memory_order_relaxed)) return;
  fail(has_failed
           ? context.failure->error()
           : std::make_exception_ptr(PeerError(context.header.describe() + " was aborted on " +
                                                   transport_.name(transport_.rank()).describe(),
                                               transport_.name(transport_.rank()).rank)),
       context.failure);
  give_up(context);
}

void CallQueue::give_up(const OpContext& context) {
  if (context.failure != nullptr) context.failure->fail(error_);
  std::rethrow_exception(error_);
}

bool CallQueue::test(Call& call) {
  if (call.is_done) return true;
  check(call.context);
  progress();
  if (error_ != nullptr) give_up(call.context);
  return call.is_done;
}

void CallQueue::run(Call& call, ScheduleKind kind) {
  try {
    launch(call, kind);
    wait(call);
  } catch (...) {
    give_back(call);
    throw;
  }
  give_back(call);
}

void CallQueue::fail(const std::exception_ptr& error, FailureState* failure) noexcept {
  if (error_ != nullptr) return;
  error_ = error;
  // The first error of the group is the one that everybody gets.
  if (failure != nullptr) {
    failure->fail(error);
    error_ = failure->error();
  }
  for (const Call* call : active_) {
    if (call->context.failure != nullptr) call->context.failure->fail(error_);
  }
  transport_.fail(error_);
  active_.clear();
}

void CallQueue::interrupt() noexcept {
  is_interrupted_.store(true, std::memory_order_relaxed);
  transport_.interrupt();
}

}  // namespace chainmail::ops
