// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/c10d/backend/work.h"

#include <ATen/core/jit_type.h>

#include <optional>
#include <utility>

#include "base/log.h"

namespace chainmail::internal {

void Payload::finish(const ops::Operation& operation) noexcept {
  // The engine's callback and a waiting caller may both get here first.
  std::call_once(once_, [&]() noexcept {
    if (!copy_out || operation.error()) return;
    try {
      copy_out();
    } catch (...) {
      copy_error = std::current_exception();
    }
  });
}

ChainmailWork::ChainmailWork(int rank, c10d::OpType type, std::uint64_t sequence,
                             std::shared_ptr<Payload> payload,
                             std::shared_ptr<ops::Operation> operation)
    : Work(rank, type),
      sequence_(sequence),
      payload_(std::move(payload)),
      operation_(std::move(operation)) {
  if (!payload_->copy_out) return;
  // Results must arrive even when nobody waits. The operation outlives its callbacks.
  operation_->on_done([payload = payload_, done = operation_.get()] { payload->finish(*done); });
}

bool ChainmailWork::isCompleted() {
  if (!operation_->is_done()) return false;
  payload_->finish(*operation_);
  return true;
}

std::exception_ptr ChainmailWork::exception() const {
  if (!operation_->is_done()) return nullptr;
  if (auto error = operation_->error()) return error;
  payload_->finish(*operation_);
  return payload_->copy_error;
}

bool ChainmailWork::isSuccess() const { return operation_->is_done() && !exception(); }

std::vector<at::Tensor> ChainmailWork::result() { return payload_->results; }

int ChainmailWork::sourceRank() const {
  TORCH_CHECK(false, "chainmail: only recvAnysource has a source rank");
}

void ChainmailWork::synchronize() { wait(); }

bool ChainmailWork::wait(std::chrono::milliseconds timeout) {
  operation_->wait(timeout == kNoTimeout ? std::nullopt : std::optional(timeout));
  payload_->finish(*operation_);
  if (payload_->copy_error) std::rethrow_exception(payload_->copy_error);
  return true;
}

c10::intrusive_ptr<c10::ivalue::Future> ChainmailWork::getFuture() {
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors());
  }
  // Outside the lock: callbacks of the future may ask this Work. It keeps what they need.
  operation_->on_done([payload = payload_, done = operation_.get(), future = future_] {
    payload->finish(*done);
    const auto error = done->error() ? done->error() : payload->copy_error;
    try {
      if (error) {
        future->setError(error);
      } else {
        future->markCompleted(c10::IValue(payload->results));
      }
    } catch (const std::exception& failure) {
      log_line(LogLevel::kError, std::string("a callback of a future threw: ") + failure.what());
    }
  });
  return future_;
}

std::uint64_t ChainmailWork::getSequencenumber() const { return sequence_; }

}  // namespace chainmail::internal
