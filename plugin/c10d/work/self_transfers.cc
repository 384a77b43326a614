// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/work/self_transfers.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace chainmail::internal {

using std::chrono::milliseconds;

class SelfTransfer final : public ops::Operation {
 public:
  SelfTransfer(const ops::Collective& collective, int rank)
      : is_send(collective.kind == ops::OpKind::kSend),
        bytes(collective.count * ops::size_of(collective.dtype)),
        input(collective.input),
        output(collective.output),
        tag_(collective.tag),
        rank_(rank),
        limit_(collective.timeout.value()),
        keep_(collective.keep) {}

  bool is_done() const noexcept override { return is_done_.load(std::memory_order_acquire); }

  void wait(std::optional<milliseconds> timeout) override {
    const milliseconds limit = std::min(timeout.value_or(limit_), limit_);
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, limit, [this] { return is_done(); })) {
      throw TimeoutError("Timed out waiting " + std::to_string(limit.count()) + " ms: " + name() +
                             " has not met its other side, which only this rank can call",
                         {rank_});
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

  void end(std::exception_ptr error, ops::CallbackExecutor& executor) {
    std::vector<std::function<void()>> callbacks;
    {
      const std::lock_guard lock(mutex_);
      error_ = std::move(error);
      is_done_.store(true, std::memory_order_release);
      callbacks.swap(callbacks_);
    }
    changed_.notify_all();
    for (auto& callback : callbacks) executor.post(std::move(callback));
  }

  std::string name() const {
    return std::string(is_send ? "the send" : "the receive") + " of " + std::to_string(bytes) +
           " bytes with tag " + std::to_string(tag_) + " between rank " + std::to_string(rank_) +
           " and itself";
  }

  const bool is_send;
  const std::size_t bytes;
  const std::byte* const input;
  std::byte* const output;

 private:
  const std::uint32_t tag_;
  const int rank_;
  const milliseconds limit_;
  std::shared_ptr<const void> keep_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> is_done_{false};
  std::exception_ptr error_;
  std::vector<std::function<void()>> callbacks_;
};

SelfTransfers::~SelfTransfers() {
  for (const auto& [tag, waiting] : by_tag_) {
    for (const auto& transfer : waiting) {
      transfer->end(std::make_exception_ptr(PeerError(
                        transfer->name() + " has not met its other side before its group went")),
                    *executor_);
    }
  }
}

std::shared_ptr<ops::Operation> SelfTransfers::submit(const ops::Collective& collective) {
  auto mine = std::make_shared<SelfTransfer>(collective, rank_);
  std::shared_ptr<SelfTransfer> other;
  {
    const std::lock_guard lock(mutex_);
    Waiting& waiting = by_tag_[collective.tag];
    if (waiting.empty() || waiting.front()->is_send == mine->is_send) {
      waiting.push_back(mine);
      return mine;
    }
    other = waiting.front();
    if (other->bytes != mine->bytes) {
      throw InvalidArgument(mine->name() + " meets " + other->name() +
                            "; both sides must have the same length");
    }
    waiting.pop_front();
    if (waiting.empty()) by_tag_.erase(collective.tag);
  }
  const SelfTransfer& from = mine->is_send ? *mine : *other;
  const SelfTransfer& to = mine->is_send ? *other : *mine;
  if (from.bytes != 0) std::memmove(to.output, from.input, from.bytes);
  other->end(nullptr, *executor_);
  mine->end(nullptr, *executor_);
  return mine;
}

}  // namespace chainmail::internal
