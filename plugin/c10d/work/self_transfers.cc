// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/work/self_transfers.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/log.h"
#include "base/threads/thread.h"
#include "ops/core/error_text.h"
#include "ops/engine/callbacks/user_code.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

// A hundred looks a second take less than a thousandth of a core; a failure is found soon enough.
constexpr milliseconds kPeriod{10};
constexpr int kIdleRounds = 200;

}  // namespace

class SelfTransfer final : public ops::Operation {
 public:
  SelfTransfer(const ops::Collective& collective, std::shared_ptr<SelfTransfers> owner, int rank,
               int global_rank)
      : is_send(collective.kind == ops::OpKind::kSend),
        tag(collective.tag),
        bytes(collective.count * ops::size_of(collective.dtype)),
        input(collective.input),
        output(collective.output),
        limit(Deadline::bounded(collective.timeout.value())),
        owner_(std::move(owner)),
        rank_(rank),
        global_rank_(global_rank),
        keep_(collective.keep) {}

  bool is_done() const noexcept override { return is_done_.load(std::memory_order_acquire); }

  void wait(std::optional<milliseconds> timeout) override {
    if (!is_done()) owner_->check_process(name());
    const Deadline deadline = Deadline::after(timeout.value_or(milliseconds::max()));
    while (!sleep_until_done(std::min(kPeriod, deadline.left()))) {
      if (deadline.has_passed()) throw TimeoutError(late_text(deadline.limit()), {global_rank_});
      owner_->look();
    }
    if (error_) std::rethrow_exception(error_);
  }

  std::exception_ptr error() const override { return is_done() ? error_ : nullptr; }

  void on_done(std::function<void()> callback) override {
    {
      const std::lock_guard lock(mutex_);
      if (!is_done()) {
        callbacks_.push_back(std::move(callback));
        return;
      }
    }
    callback();
  }

  int source_rank() const noexcept override { return !is_send && is_done() ? rank_ : -1; }

  /// Called by whoever has taken it out of its queue.
  void end(const std::exception_ptr& error, ops::CallbackExecutor& executor) {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      if (error) error_ = ops::in_operation(name(), error);
      is_done_.store(true, std::memory_order_release);
      callbacks.swap(callbacks_);
    }
    changed_.notify_all();
    for (auto& callback : callbacks) executor.post(std::move(callback));
  }

  std::string name() const {
    return std::string(is_send ? "the send" : "the receive") + " of " + std::to_string(bytes) +
           " bytes with tag " + std::to_string(tag) + " between rank " +
           std::to_string(global_rank_) + " and itself";
  }
  std::string late_text(milliseconds waited) const {
    return "Timed out waiting " + std::to_string(waited.count()) + " ms: " + name() +
           " has not met its other side, which only this rank can call";
  }

  const bool is_send;
  const std::uint32_t tag;
  const std::size_t bytes;
  const std::byte* const input;
  std::byte* const output;
  const milliseconds limit;
  const Clock::time_point submitted = Clock::now();

 private:
  bool sleep_until_done(milliseconds longest) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, longest, [this] { return is_done(); });
  }

  const std::shared_ptr<SelfTransfers> owner_;
  const int rank_;
  const int global_rank_;
  const std::shared_ptr<const void> keep_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_done_{false};
  std::exception_ptr error_;  // written before is_done_
  std::vector<std::function<void()>> callbacks_;
};

SelfTransfers::SelfTransfers(const std::shared_ptr<ops::Group>& group, int global_rank)
    : group_(group),
      executor_(group->callbacks()),
      rank_(group->rank()),
      global_rank_(global_rank),
      process_(::getpid()) {}

SelfTransfers::~SelfTransfers() = default;

// In a forked child the mutex may be held forever, and the thread does not exist.
bool SelfTransfers::is_forked() const noexcept { return ::getpid() != process_; }

void SelfTransfers::check_process(const std::string& who) const {
  if (is_forked()) {
    throw InvalidArgument(
        who + ": the group belongs to the parent process; a forked child cannot use it");
  }
}

std::shared_ptr<ops::Operation> SelfTransfers::submit(const ops::Collective& collective) {
  const auto mine =
      std::make_shared<SelfTransfer>(collective, shared_from_this(), rank_, global_rank_);
  check_process(mine->name());
  const auto group = group_.lock();
  if (const auto error = group ? group->error() : nullptr) {
    std::rethrow_exception(ops::in_operation(mine->name(), error));
  }
  const TransferPtr other = match(mine);
  if (!other) return mine;
  std::exception_ptr error;
  if (other->bytes != mine->bytes) {
    error = fail_group(std::make_exception_ptr(MismatchError(
        mine->name() + " meets " + other->name() + "; both sides must have the same length")));
  } else if (mine->bytes != 0) {
    const SelfTransfer& from = mine->is_send ? *mine : *other;
    const SelfTransfer& to = mine->is_send ? *other : *mine;
    std::memmove(to.output, from.input, from.bytes);
  }
  other->end(error, *executor_);
  mine->end(error, *executor_);
  if (error) fail_all(error);
  return mine;
}

/// Takes the matching transfer out of its queue; null when `mine` has to wait for it.
SelfTransfers::TransferPtr SelfTransfers::match(const TransferPtr& mine) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) {
    throw InvalidArgument(mine->name() + ": the group was shut down; create a new one");
  }
  TagQueue& queue = queues_[mine->tag];
  if (queue.waiting.empty() || queue.waiting.front()->is_send == mine->is_send) {
    queue.waiting.push_back(mine);
    start_thread();
    return nullptr;
  }
  const TransferPtr other = queue.waiting.front();
  queue.waiting.pop_front();
  queue.last_end = Clock::now();
  if (queue.waiting.empty()) queues_.erase(mine->tag);
  return other;
}

/// Takes one whose time limit has passed out of its queue. As between ranks, the time of each
/// starts when the one before ends.
SelfTransfers::TransferPtr SelfTransfers::take_late() {
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  for (auto place = queues_.begin(); place != queues_.end(); ++place) {
    TagQueue& queue = place->second;
    const auto late =
        std::find_if(queue.waiting.begin(), queue.waiting.end(), [&](const TransferPtr& transfer) {
          return now >= std::max(transfer->submitted, queue.last_end) + transfer->limit;
        });
    if (late == queue.waiting.end()) continue;
    const TransferPtr transfer = *late;
    queue.waiting.erase(late);
    if (queue.waiting.empty()) queues_.erase(place);
    return transfer;
  }
  return nullptr;
}

std::vector<SelfTransfers::TransferPtr> SelfTransfers::take_all() {
  const std::lock_guard lock(mutex_);
  std::vector<TransferPtr> all;
  for (const auto& [tag, queue] : queues_) {
    all.insert(all.end(), queue.waiting.begin(), queue.waiting.end());
  }
  queues_.clear();
  return all;
}

/// Fails the group; returns its error, which may be an earlier one.
std::exception_ptr SelfTransfers::fail_group(const std::exception_ptr& error) {
  const auto group = group_.lock();
  if (!group) return error;
  group->abort(error);
  const std::exception_ptr first = group->error();
  return first ? first : error;
}

void SelfTransfers::look() {
  std::exception_ptr error;
  if (const auto group = group_.lock()) error = group->error();
  if (const TransferPtr late = error ? nullptr : take_late()) {
    error = fail_group(
        std::make_exception_ptr(TimeoutError(late->late_text(late->limit), {global_rank_})));
    late->end(error, *executor_);
  }
  if (error) fail_all(error);
}

void SelfTransfers::fail_all(const std::exception_ptr& error) {
  for (const TransferPtr& transfer : take_all()) transfer->end(error, *executor_);
}

void SelfTransfers::close() {
  if (is_forked()) {
    if (thread_.joinable()) thread_.detach();
    return;
  }
  std::thread thread;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    thread = std::move(thread_);
  }
  stop_.notify_all();
  join_or_let_go(std::move(thread));
  look();
  fail_all(std::make_exception_ptr(
      InvalidArgument("the group was shut down before a send or receive between rank " +
                      std::to_string(global_rank_) + " and itself had met its other side")));
}

/// If no thread can be started, callers that wait check by themselves.
void SelfTransfers::start_thread() {
  if (thread_.joinable()) return;
  try {
    thread_ = std::thread([self = shared_from_this()] { self->run(); });
  } catch (const std::system_error& failure) {
    if (!std::exchange(has_warned_, true)) {
      log_line(LogLevel::kWarning,
               std::string("cannot start the thread that looks after sends of a rank to itself: ") +
                   failure.what());
    }
  }
}

void SelfTransfers::run() {
  const ops::DefersRelease guard;
  int idle = 0;
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, kPeriod, [this] { return is_closed_; })) {
    idle = queues_.empty() ? idle + 1 : 0;
    if (idle > kIdleRounds) {
      thread_.detach();  // start_thread() makes another
      return;
    }
    if (idle > 0) continue;
    lock.unlock();
    look();
    lock.lock();
  }
}

}  // namespace chainmail::internal
