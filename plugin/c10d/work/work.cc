// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/work/work.h"

#include <ATen/core/jit_type.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <optional>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/error.h"
#include "base/log.h"
#include "ops/engine/callbacks/callback_executor.h"
#include "ops/engine/callbacks/user_code.h"

namespace chainmail::internal {
namespace {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

c10d::WorkResult result_of(const std::exception_ptr& error) {
  if (!error) return c10d::WorkResult::SUCCESS;
  try {
    std::rethrow_exception(error);
  } catch (const TimeoutError&) {
    return c10d::WorkResult::TIMEOUT;
  } catch (...) {
    return c10d::WorkResult::COMM_ERROR;
  }
}

}  // namespace

Payload::Payload(std::shared_ptr<ops::CallbackExecutor> executor) noexcept
    : executor_(std::move(executor)) {}

Payload::~Payload() {
  if (!executor_ || !ops::DefersRelease::is_active()) return;
  executor_->post([contents = std::make_shared<PayloadContents>(std::move(*this))] {});
}

void Payload::keep_alive(const at::Tensor& tensor) {
  if (!results.empty() && results.front().is_same(tensor)) return;
  if (!keep.empty() && keep.back().is_same(tensor)) return;
  keep.push_back(tensor);
}

c10::TypePtr Payload::type() const {
  const c10::TypePtr tensors = c10::ListType::ofTensors();
  return lists.size() > 1 ? c10::TypePtr(c10::ListType::create(tensors)) : tensors;
}

c10::IValue Payload::value() const {
  return lists.size() > 1 ? c10::IValue(lists) : c10::IValue(results);
}

bool Payload::begin() noexcept {
  is_inference_ = c10::InferenceMode::is_enabled();
  const bool has_work = copy_out || at_end;
  is_finished_.store(!has_work, std::memory_order_relaxed);
  return has_work;
}

void Payload::finish(const ops::Operation& operation) noexcept {
  if (is_finished()) return;
  // The engine's callback and a waiting caller may both get here first.
  std::call_once(once_, [&]() noexcept {
    try {
      if (copy_out && !operation.error()) {
        std::optional<c10::InferenceMode> mode;
        if (is_inference_) mode.emplace();  // else inference tensors cannot be written to
        copy_out();
      }
    } catch (...) {
      copy_error = std::current_exception();
    }
    if (at_end) std::exchange(at_end, nullptr)();
    is_finished_.store(true, std::memory_order_release);
  });
}

void Payload::run_later(std::function<void()> task) {
  if (executor_) return executor_->post(std::move(task));
  task();
}

GroupWork::GroupWork(int rank, c10d::OpType type, std::uint64_t sequence,
                     std::shared_ptr<Payload> payload, std::weak_ptr<ops::Group> group)
    : Work(rank, type),
      payload_(std::move(payload)),
      sequence_(sequence),
      group_(std::move(group)) {}

std::vector<at::Tensor> GroupWork::result() {
  TORCH_CHECK(payload_->lists.size() <= 1,
              "chainmail: result() does not support a list of lists, use getFuture()->value()");
  return payload_->results;
}

void GroupWork::abort() {
  const auto group = is_done() ? nullptr : group_.lock();
  if (!group) return;
  group->abort(std::make_exception_ptr(
      PeerError(c10d::opTypeToString(opType_) + " #" + std::to_string(sequence_) + " of group " +
                    group->options().name + " was aborted by rank " + std::to_string(rank_) +
                    " on " + group->options().host,
                rank_)));
}

void GroupWork::note_waited() {
  if (c10d::allow_inflight_collective_as_graph_input()) {
    c10d::unregister_work(c10::intrusive_ptr<Work>::unsafe_reclaim_from_nonowning(this));
  }
}

ChainmailWork::ChainmailWork(int rank, c10d::OpType type, std::uint64_t sequence,
                             std::shared_ptr<Payload> payload,
                             std::shared_ptr<ops::Operation> operation,
                             std::weak_ptr<ops::Group> group)
    : GroupWork(rank, type, sequence, std::move(payload), std::move(group)),
      operation_(std::move(operation)) {
  if (!payload_->begin()) return;
  // Results must arrive even when nobody waits.
  operation_->on_done([payload = payload_, done = operation_] { payload->finish(*done); });
}

std::exception_ptr ChainmailWork::finish() const noexcept {
  payload_->finish(*operation_);
  return exception();
}

std::exception_ptr ChainmailWork::exception() const {
  if (!is_finished()) return nullptr;
  const std::exception_ptr error = operation_->error();
  return error ? error : payload_->copy_error;
}

std::vector<at::Tensor> ChainmailWork::result() {
  TORCH_CHECK(isCompleted(),
              "chainmail: Work needs to be completed before calling result(); call wait() first");
  return GroupWork::result();
}

int ChainmailWork::sourceRank() const {
  TORCH_CHECK(opType_ == c10d::OpType::RECV || opType_ == c10d::OpType::RECVANYSOURCE,
              "chainmail: only receives have a source rank");
  return operation_->source_rank();
}

std::optional<std::chrono::milliseconds> limit_of_wait(std::chrono::milliseconds timeout) {
  if (timeout == kNoTimeout) return std::nullopt;
  return Deadline::bounded(timeout);
}

bool ChainmailWork::wait(std::chrono::milliseconds timeout) {
  try {
    operation_->wait(limit_of_wait(timeout));
  } catch (...) {
    if (operation_->is_done()) payload_->finish(*operation_);
    throw;
  }
  const std::exception_ptr error = finish();
  note_waited();
  if (error) std::rethrow_exception(error);
  return true;
}

/// Calls `complete` with the error, or null, when the results are in their places.
void ChainmailWork::on_end(std::function<void(const std::exception_ptr&)> complete) const {
  const auto finished = [payload = payload_, done = operation_,
                         complete = std::move(complete)]() noexcept {
    try {
      complete(done->error() ? done->error() : payload->copy_error);
    } catch (const std::exception& failure) {  // a future's callbacks are its user's code
      log_line(LogLevel::kError, std::string("a callback of a future threw: ") + failure.what());
    }
  };
  operation_->on_done([payload = payload_, done = operation_, finished]() noexcept {
    if (payload->is_finished()) return finished();
    // This may be a caller in Python.
    payload->run_later([payload, done, finished] {
      payload->finish(*done);
      finished();
    });
  });
}

FuturePtr ChainmailWork::getFuture() {
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(payload_->type());
  }
  // Outside the lock: callbacks of the future may ask this Work.
  on_end([payload = payload_, future = future_](const std::exception_ptr& error) {
    if (error) {
      future->setError(error);
    } else {
      future->markCompleted(payload->value());
    }
  });
  return future_;
}

FuturePtr ChainmailWork::getFutureResult() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(c10::AnyEnumType::get());
  on_end([future](const std::exception_ptr& error) {
    future->markCompleted(static_cast<std::uint8_t>(result_of(error)));
  });
  return future;
}

}  // namespace chainmail::internal
