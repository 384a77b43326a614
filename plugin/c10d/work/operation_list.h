// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Several operations of one group as one: done when all are, failed when one is.
//
// Thread-safe.

#pragma once

#include <memory>
#include <vector>

#include "ops/engine/group.h"

namespace chainmail::internal {

class OperationList final : public ops::Operation,
                            public std::enable_shared_from_this<OperationList> {
 public:
  explicit OperationList(std::vector<std::shared_ptr<ops::Operation>> parts)
      : parts_(std::move(parts)) {}

  bool is_done() const noexcept override;
  void wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) override;
  /// The first, in the order of the list.
  std::exception_ptr error() const override;
  void on_done(std::function<void()> callback) override;
  int source_rank() const noexcept override { return -1; }

 private:
  const std::vector<std::shared_ptr<ops::Operation>> parts_;
};

}  // namespace chainmail::internal
