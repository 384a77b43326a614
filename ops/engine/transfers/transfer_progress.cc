// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How a TransferEngine's transfers move, end and fail.

#include <algorithm>
#include <thread>
#include <utility>

#include "ops/engine/transfers/transfer_engine.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;

// The longest sleep in a Transport: flags and time limits are looked at this often.
constexpr milliseconds kSlice{10};
// Nobody sleeps sooner than this after the last move: waking up costs tens of microseconds.
constexpr std::chrono::microseconds kSpin{200};
// In this time what has come for a receive is seen: longer than kSlice.
constexpr milliseconds kLinger{20};

}  // namespace

/// All transfers, to be ended with `error`.
TransferEngine::Outcome TransferEngine::take_all(const std::exception_ptr& error) {
  is_broken_ = true;
  if (transport_ != nullptr) transport_->fail(error);  // no buffer is touched any more
  new_.clear();
  Outcome outcome;
  outcome.error = error;
  outcome.ended.assign(pending_.begin(), pending_.end());
  pending_.clear();
  for (OperationPtr& operation : open_) {
    (operation->claim() ? outcome.ended : dropped_).push_back(std::move(operation));
  }
  open_.clear();
  return outcome;
}

void TransferEngine::end_all(Lock& lock, const std::exception_ptr& error) {
  Outcome outcome = take_all(error);
  changed_.notify_all();
  tell(lock, std::move(outcome));
}

/// In a catch block: the Transport is of no use after this.
void TransferEngine::break_down(Outcome& outcome) {
  outcome.error = std::current_exception();
  is_broken_ = true;
  is_sleeping_ = false;
  new_.clear();
  if (transport_ != nullptr) transport_->fail(outcome.error);
  for (const auto* list : {&pending_, &open_}) {
    for (const OperationPtr& operation : *list) {
      if (list == &open_ && operation->is_claimed()) continue;  // another engine's, or taken back
      if (outcome.failed == nullptr || operation.get() == culprit_) outcome.failed = operation;
    }
  }
  culprit_ = nullptr;
  if (outcome.failed == nullptr) untold_ = outcome.error;  // the next one will be told
}

/// Ends operations, and the group when something has broken. Operations are let go of without the
/// lock: what one keeps, a caller's tensors perhaps, may take locks when it goes.
void TransferEngine::tell(Lock& lock, Outcome outcome) {
  if (outcome.ended.empty() && outcome.failed == nullptr && dropped_.empty()) return;
  for (const OperationPtr& operation : outcome.ended) {
    for (auto& callback : operation->end(outcome.failed == nullptr ? outcome.error : nullptr)) {
      executor_->post(std::move(callback));
    }
  }
  if (waiters_ > 0) changed_.notify_all();
  auto dropped = std::exchange(dropped_, {});
  lock.unlock();
  if (outcome.failed != nullptr) {
    on_broken_(*outcome.failed, outcome.error);
    fail_all(outcome.error);  // if nobody has
  }
  dropped.clear();
  outcome = {};
  lock.lock();
}

TransferEngine::Outcome TransferEngine::step(Lock& lock, Clock::time_point limit) {
  if (failure_ != nullptr) return take_all(failure_);
  Outcome outcome;
  try {
    admit();
    const bool has_moved = transport_->progress();
    match_open_receives();
    collect(outcome.ended);
    const auto now = Clock::now();
    if (has_moved || !outcome.ended.empty()) last_move_ = now;
    const bool may_sleep = now - last_move_ >= kSpin;
    if (may_sleep || now >= next_look_) {
      next_look_ = now + kSlice;
      look_after(now);
    }
    if (may_sleep) {
      sleep(lock, std::min({limit, next_deadline(), now + kSlice}));
    } else if (last_move_ != now || visitors_ > 0) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    }
  } catch (...) {
    break_down(outcome);
  }
  return outcome;
}

void TransferEngine::sleep(Lock& lock, Clock::time_point limit) {
  const auto time = std::chrono::ceil<std::chrono::microseconds>(limit - Clock::now());
  is_sleeping_ = true;
  lock.unlock();
  try {
    transport_->wait(std::max(time, std::chrono::microseconds{0}));
  } catch (...) {
    lock.lock();
    throw;
  }
  lock.lock();
  is_sleeping_ = false;
}

/// Moves transfers, or waits for who does, until `is_done()`; false when `limit` passed first.
template <typename IsDone>
bool TransferEngine::work_until(Lock& lock, Clock::time_point limit, const IsDone& is_done) {
  ++waiters_;
  last_move_ = Clock::now();
  if (is_sleeping_) {
    transport_->interrupt();  // the thread lets us
  }
  bool is_in_time = true;
  while (!is_done() && is_in_time) {
    if (can_step()) {
      is_driven_ = true;
      Outcome outcome = step(lock, limit);
      is_driven_ = false;
      if (is_parting_) {
        changed_.notify_all();  // disconnect() waits for this
      }
      tell(lock, std::move(outcome));
    } else {
      changed_.wait_until(lock, limit);
    }
    is_in_time = is_done() || Clock::now() < limit;
  }
  --waiters_;
  if (waiters_ > 0) {
    changed_.notify_all();
  } else if (has_work()) {
    call_thread(false);
  }
  return is_in_time;
}

bool TransferEngine::wait(const TransferOperation& operation, milliseconds limit) {
  Lock lock = enter();
  return work_until(lock, Clock::now() + limit, [&] { return operation.is_done(); });
}

bool TransferEngine::has_sends() const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [](const OperationPtr& operation) { return operation->is_send(); });
}

bool TransferEngine::is_any_under_way() const {
  return std::any_of(pending_.begin(), pending_.end(),
                     [](const OperationPtr& operation) { return operation->is_under_way(); });
}

bool TransferEngine::drain(milliseconds limit) {
  Lock lock = enter();
  const auto end = Clock::now() + limit;
  bool is_coming = has_work();
  while (is_coming) {
    if (!work_until(lock, end, [this] { return !is_any_under_way(); })) return false;
    const auto moves = [this] { return transport_ == nullptr ? 0 : transport_->counters().moves; };
    const std::uint64_t before = moves();
    work_until(lock, std::min(end, Clock::now() + kLinger), [this] { return !has_work(); });
    is_coming = has_work() && (is_any_under_way() || moves() != before);
    if (is_coming && Clock::now() >= end) return false;
  }
  return true;
}

void TransferEngine::fail_all(const std::exception_ptr& error) {
  Lock lock = enter();
  if (failure_ != nullptr) return;
  failure_ = error;
  if (is_sleeping_) {
    transport_->interrupt();  // who sleeps there ends them
    return;
  }
  end_all(lock, failure_);
}

}  // namespace chainmail::ops
