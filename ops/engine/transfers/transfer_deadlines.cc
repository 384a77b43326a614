// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A TransferEngine's transfers that take long, and its thread.

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/threads/thread.h"
#include "ops/engine/callbacks/user_code.h"
#include "ops/engine/transfers/transfer_engine.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;

// The longest time between two inquiries.
constexpr milliseconds kMaxInquiryPause{500};
// How long a Transport may be in use after its transfers were ended.
constexpr std::chrono::seconds kAbortLimit{10};

std::exception_ptr shut_down_error() {
  return std::make_exception_ptr(
      InvalidArgument("the group was shut down before this send or receive had ended"));
}

}  // namespace

void TransferEngine::look_after(Clock::time_point now) {
  const TransportCounters counters = transport_->counters();
  const std::uint64_t messages = counters.messages_sent + counters.messages_received;
  const bool has_traffic = std::exchange(seen_messages_, messages) != messages;
  for (const OperationPtr& operation : pending_) {
    operation->look(now);
    if (now >= operation->deadline()) give_up(*operation, false);
    if (now < operation->next_inquiry) continue;
    if (has_traffic) {  // not late, only long
      operation->inquiry_pause = kFirstInquiry;
    } else {
      culprit_ = operation.get();
      operation->transfer().is_asked = true;
      transport_->inquire(operation->transfer());
      culprit_ = nullptr;
      operation->inquiry_pause = std::clamp(
          2 * operation->inquiry_pause, ProgressTracker::period(operation->timeout, kFirstInquiry),
          ProgressTracker::period(operation->timeout, kMaxInquiryPause));
    }
    operation->next_inquiry = now + operation->inquiry_pause;
  }
  for (auto place = open_.begin(); place != open_.end(); ++place) {
    if (now < (*place)->open_deadline()) continue;
    if (TransferOperation* const late = take_open(place)) give_up(*late, true);
  }
  look_for_lost_senders();
}

/// Claims a receive from any rank for the error that is thrown next, lest another engine goes on
/// with it and the error is taken for another transfer's. Null when another engine has it.
TransferOperation* TransferEngine::take_open(std::list<OperationPtr>::iterator place) {
  if (!(*place)->claim()) return nullptr;
  pending_.splice(pending_.end(), open_, place);
  return pending_.back().get();
}

void TransferEngine::look_for_lost_senders() {
  if (open_.empty()) return;
  culprit_ = open_.front().get();
  const std::optional<PeerError> loss = find_lost_senders();
  culprit_ = nullptr;
  if (!loss) return;
  for (auto place = open_.begin(); place != open_.end(); ++place) {
    culprit_ = take_open(place);
    if (culprit_ != nullptr) throw PeerError(*loss);
  }
}

/// Why a message from any rank will not come, if so.
std::optional<PeerError> TransferEngine::find_lost_senders() {
  bool may_come = !plan_.serves_all;  // from those that another engine serves
  for (const auto& [rank, number] : numbers_) {
    const PeerState state = transport_->state(number);
    if (state == PeerState::kLost) {
      return PeerError(transport_->name(number).describe() +
                           " died or was cut off while this rank waits for a message from any rank",
                       transport_->name(number).rank);
    }
    may_come = may_come || state != PeerState::kLeft;
  }
  if (may_come) return std::nullopt;
  return PeerError("all ranks that could send have finished and left the group: " + list_senders(),
                   numbers_.size() == 1 ? transport_->name(numbers_.begin()->second).rank : -1);
}

/// "rank 1 on host n1, rank 2 on host n2"; of many the first.
std::string TransferEngine::list_senders() const {
  constexpr std::size_t kMost = 8;
  std::vector<int> numbers;
  for (const auto& [rank, number] : numbers_) numbers.push_back(number);
  std::sort(numbers.begin(), numbers.end());
  std::string text;
  for (std::size_t i = 0; i < std::min(numbers.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + transport_->name(numbers[i]).describe();
  }
  return numbers.size() > kMost ? text + " and " + std::to_string(numbers.size() - kMost) + " more"
                                : text;
}

void TransferEngine::give_up(TransferOperation& operation, bool is_open) {
  culprit_ = &operation;
  std::vector<int> missing;
  if (!is_open) {
    missing.push_back(transport_->name(operation.transfer().peer).rank);
  } else {
    for (const auto& [rank, number] : numbers_) missing.push_back(transport_->name(number).rank);
    std::sort(missing.begin(), missing.end());
  }
  throw TimeoutError("nothing has moved for " + std::to_string(operation.timeout.count()) + " ms",
                     std::move(missing));
}

TransferEngine::Clock::time_point TransferEngine::next_deadline() const {
  auto next = Clock::time_point::max();
  for (const OperationPtr& each : pending_) next = std::min(next, each->deadline());
  for (const OperationPtr& each : open_) {
    if (!each->is_claimed()) next = std::min(next, each->open_deadline());
  }
  return next;
}

bool TransferEngine::call_thread() {
  const std::lock_guard lock(mutex_);
  return call_thread(true);
}

bool TransferEngine::call_thread(bool is_urgent) {
  is_urgent_ = is_urgent_ || is_urgent;
  if (thread_.wake(is_urgent)) return true;
  try {
    thread_.start([self = shared_from_this()] { self->work(); });
    return true;
  } catch (const std::system_error& e) {
    // Whoever waits moves them.
    if (!std::exchange(has_warned_, true)) {
      internal::log_line(internal::LogLevel::kWarning,
                         std::string("cannot start the thread for sends and receives that nobody "
                                     "waits for: ") +
                             e.what());
    }
    return false;
  }
}

void TransferEngine::work() {
  const DefersRelease guard;
  Lock lock(mutex_);
  bool has_rested = true;
  while (!thread_.is_stopped()) {
    if (!can_drive()) {
      is_urgent_ = is_urgent_ && has_work();
      const bool stays = thread_.rest(
          lock, [this] { return can_drive(); }, [] { return 0; }, [this] { return has_work(); });
      if (!stays) return;
      has_rested = true;
    } else if (std::exchange(has_rested, false) && !is_urgent_) {
      thread_.nap(lock, [this] { return is_urgent_; });  // those first who wait at once
    } else {
      is_driven_ = true;
      Outcome outcome = step(lock, Clock::time_point::max());
      is_driven_ = false;
      if (waiters_ > 0) changed_.notify_all();
      tell(lock, std::move(outcome));
    }
  }
}

void TransferEngine::stop() {
  std::thread thread;
  bool is_left = false;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    thread = thread_.stop();
    is_left = has_sends();
  }
  if (is_left) {  // else the peers are to hear that all is well
    fail_all(shut_down_error());
  }
  internal::join_or_let_go(std::move(thread));
}

void TransferEngine::disconnect() noexcept {
  Lock lock = enter();
  is_parting_ = true;
  // Not by interrupt(), after which a Transport parts in haste: nobody sleeps there for long.
  if (!changed_.wait_for(lock, kAbortLimit, [this] { return !is_driven_; })) {
    static_cast<void>(transport_.release());  // who is caught in it still uses it
    is_sleeping_ = false;
  }
  if (failure_ == nullptr) transport_.reset();  // the peers are to hear that all is well
  Outcome outcome;
  // Receives that nothing came for, and what the thread left when it was stopped; or nothing, and
  // the peers have not been told why the group failed.
  if (has_work() || failure_ != nullptr) {
    outcome = take_all(failure_ != nullptr ? failure_ : shut_down_error());
    changed_.notify_all();
  }
  transport_.reset();
  tell(lock, std::move(outcome));
}

void TransferEngine::leak() noexcept {
  is_leaked_ = true;
  thread_.forget();
  static_cast<void>(transport_.release());
}

}  // namespace chainmail::ops
