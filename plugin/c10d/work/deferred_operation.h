// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A send or receive of a batch, which is submitted when the batch ends: with the others or, when
// one of them cannot be right, not at all. Whoever has the batch begins or refuses it, or it keeps
// itself, and what waits for it, for ever.
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
  /// It never begins; ends it with `error`. Callbacks, which may begin another batch, run in
  /// threads of `executor`, or here where those have ended with the group.
  void refuse(std::exception_ptr error, ops::CallbackExecutor& executor);

  bool is_done() const noexcept override;
  /// Before the end of the batch: throws InvalidArgument, for nobody else would end it.
  void wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) override;
  std::exception_ptr error() const override;
  void on_done(std::function<void()> callback) override;
  int source_rank() const noexcept override;

 private:
  std::shared_ptr<ops::Operation> begun() const noexcept;

  mutable std::mutex mutex_;
  std::shared_ptr<ops::Operation> operation_;
  std::exception_ptr refusal_;
  std::vector<std::function<void()>> callbacks_;  // until one of the two is there
};

}  // namespace chainmail::internal
