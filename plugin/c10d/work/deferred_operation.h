// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A send or receive of a batch, which is submitted when the batch ends: with the others or, when
// one of them is invalid, not at all. The owner of the batch must begin or refuse it, since its
// callbacks keep it alive until then.
//
// Thread-safe.

#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ops/engine/callbacks/callback_executor.h"
#include "ops/engine/group.h"

namespace chainmail::internal {

class DeferredOperation final : public ops::Operation {
 public:
  /// From now on this stands for `operation`.
  void begin(std::shared_ptr<ops::Operation> operation);
  /// Ends it with `error` instead. Callbacks, which may begin another batch, run in threads of
  /// `executor`, or here if those have ended with the group.
  void refuse(std::exception_ptr error, ops::CallbackExecutor& executor);

  bool is_done() const noexcept override;
  /// Before the end of the batch: throws InvalidArgument, since it would wait forever.
  void wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) override;
  std::exception_ptr error() const override;
  void on_done(std::function<void()> callback) override;
  int source_rank() const noexcept override;

 private:
  std::shared_ptr<ops::Operation> begun() const noexcept;

  mutable std::mutex mutex_;
  std::shared_ptr<ops::Operation> operation_;
  std::exception_ptr refusal_;
  std::vector<std::function<void()>> callbacks_;  // until one of the two is set
};

}  // namespace chainmail::internal
