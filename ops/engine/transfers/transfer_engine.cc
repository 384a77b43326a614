// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/transfers/transfer_engine.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ops/core/error_text.h"

namespace chainmail::ops {
namespace {

// Above this a transfer takes longer than waking the thread.
constexpr std::size_t kUrgentBytes = std::size_t{64} << 10;
constexpr std::size_t kKeptPast = 32;

std::uint64_t channel_key(int number, std::uint32_t tag) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(number)) << 32U | tag;
}

}  // namespace

TransferEngine::TransferEngine(TransferEnginePlan plan, std::shared_ptr<CallbackExecutor> executor,
                               OnBroken on_broken)
    : plan_(std::move(plan)), executor_(std::move(executor)), on_broken_(std::move(on_broken)) {
  for (std::size_t i = 0; i < plan_.ranks.size(); ++i) {
    if (plan_.is_served[i]) numbers_.emplace(plan_.ranks[i], static_cast<int>(i));
  }
}

TransferEngine::~TransferEngine() {
  if (!is_leaked_) {  // else the mutex may be held by a thread that does not exist
    stop();
  }
}

/// The lock; whoever moves transfers lets go of it soon.
TransferEngine::Lock TransferEngine::enter() const {
  ++visitors_;
  Lock lock(mutex_);
  --visitors_;
  return lock;
}

void TransferEngine::submit(const OperationPtr& operation) {
  Lock lock = enter();
  if (failure_ != nullptr) {
    std::rethrow_exception(in_operation(to_string(operation->collective.kind), failure_));
  }
  if (is_closed_) {
    throw InvalidArgument(std::string(to_string(operation->collective.kind)) +
                          ": the group was shut down; create a new one");
  }
  Outcome outcome;
  try {
    begin(operation, outcome);
  } catch (...) {
    break_down(outcome);
  }
  if (has_work() && operation->collective.is_async) {
    call_thread(operation->plan.bytes > kUrgentBytes);
  }
  tell(lock, std::move(outcome));
}

void TransferEngine::begin(const OperationPtr& operation, Outcome& outcome) {
  const bool is_open = is_from_any_rank(operation->collective);
  if (is_open) {
    open_.push_back(operation);
  } else {
    static_cast<void>(operation->claim());
    join_channel(*operation, numbers_.at(operation->collective.root));
    pending_.push_back(operation);
  }
  if (untold_ != nullptr) std::rethrow_exception(std::exchange(untold_, nullptr));
  if (is_broken_) {
    return;  // fail_all() is about to come and ends this one, too
  }
  culprit_ = operation.get();
  if (transport_ == nullptr) transport_ = plan_.make();
  if (!is_open) new_.push_back(operation);
  if (is_sleeping_) {
    transport_->interrupt();
    return;
  }
  admit();
  match_open_receives();
  collect(outcome.ended);
}

/// Numbers the transfer among those with its peer and tag, and says what is to move.
void TransferEngine::join_channel(TransferOperation& operation, int number) {
  const Collective& what = operation.collective;
  auto& channels = operation.is_send() ? sends_ : receives_;
  operation.channel = &channels[channel_key(number, what.tag)];
  const std::uint64_t count = operation.channel->count++;
  Transfer& transfer = operation.transfer();
  transfer.peer = number;
  transfer.tag = Tag::point_to_point(what.tag, count);
  transfer.bytes = what.count * size_of(what.dtype);
  transfer.header = operation.plan.header;
  transfer.header.sequence = count;
  operation.send.data = what.input;
  operation.receive.data = what.output;
  operation.set_source(plan_.ranks[static_cast<std::size_t>(number)]);
  if (!is_from_any_rank(what)) {
    operation.plan.header.sequence = count;  // others cannot see it yet
  }
}

void TransferEngine::post(TransferOperation& operation) {
  culprit_ = &operation;
  operation.next_inquiry = Clock::now() + kFirstInquiry;
  operation.inquiry_pause = kFirstInquiry;
  if (operation.is_send()) {
    transport_->post(operation.send);
  } else {
    transport_->post(operation.receive);
  }
  culprit_ = nullptr;
}

/// Takes up what was submitted while somebody slept in the Transport.
void TransferEngine::admit() {
  if (!open_.empty() && !std::exchange(is_expecting_all_, true)) transport_->expect_all();
  for (const OperationPtr& operation : std::exchange(new_, {})) post(*operation);
}

void TransferEngine::match_open_receives() {
  for (auto place = open_.begin(); place != open_.end();) {
    const OperationPtr operation = *place;
    const int sender = operation->is_claimed() ? -1 : find_sender(*operation);
    if (sender < 0 && !operation->is_claimed()) {
      ++place;
      continue;
    }
    place = open_.erase(place);
    if (sender < 0 || !operation->claim()) {
      dropped_.push_back(operation);
      continue;
    }
    join_channel(*operation, sender);
    pending_.push_back(operation);
    post(*operation);
  }
}

/// A peer whose next message with this tag has no receive yet, or -1.
int TransferEngine::find_sender(const TransferOperation& operation) {
  const std::uint32_t tag = operation.collective.tag;
  for (std::size_t i = 0; i < plan_.ranks.size(); ++i) {
    const std::size_t index = (next_sender_ + i) % plan_.ranks.size();
    if (!plan_.is_served[index]) continue;
    const int number = static_cast<int>(index);
    const auto known = receives_.find(channel_key(number, tag));
    const std::uint64_t next = known == receives_.end() ? 0 : known->second.count;
    if (transport_->has_message(number, Tag::point_to_point(tag, next))) {
      next_sender_ = index + 1;
      return number;
    }
  }
  return -1;
}

/// Moves what is done out of pending_.
void TransferEngine::collect(std::vector<OperationPtr>& ended) {
  for (auto place = pending_.begin(); place != pending_.end();) {
    if (!(*place)->transfer().is_done.load(std::memory_order_acquire)) {
      ++place;
      continue;
    }
    TransferOperation& operation = **place;
    operation.channel->last_end = Clock::now();
    PastOperation past{operation.plan.channel, operation.plan.header};
    if (past_.size() < kKeptPast) {
      past_.push_back(std::move(past));
    } else {
      past_[past_count_ % kKeptPast] = std::move(past);
    }
    ++past_count_;
    ended.push_back(std::move(*place));
    place = pending_.erase(place);
  }
}

void TransferEngine::close() {
  const Lock lock = enter();
  is_closed_ = true;
}

void TransferEngine::list_pending(std::vector<std::shared_ptr<PlannedOperation>>& list,
                                  std::size_t most) const {
  const Lock lock = enter();
  for (const auto* operations : {&pending_, &open_}) {
    for (const OperationPtr& operation : *operations) {
      if (list.size() >= most) return;
      list.push_back(operation);
    }
  }
}

void TransferEngine::list_past(std::vector<PastOperation>& list) const {
  const Lock lock = enter();
  list.insert(list.end(), past_.begin(), past_.end());
}

}  // namespace chainmail::ops
