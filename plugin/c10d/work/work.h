// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A collective on its way, as c10d's callers see it: Work and Future over an engine operation.
//
// Thread-safe. The tensors live until the operation is done even when nobody keeps the Work.

#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "ops/engine/group.h"

namespace chainmail::internal {

/// The tensors of one operation.
struct Payload {
  std::vector<at::Tensor> results;  ///< what result() and the Future give
  std::vector<at::Tensor> buffers;  ///< flat memory that the engine works on
  std::function<void()> copy_out;   ///< buffers to results, after success

  /// Runs copy_out once, whoever comes first; others wait for it. Called when the operation is
  /// done.
  void finish(const ops::Operation& operation) noexcept;

  std::exception_ptr copy_error;  ///< valid after finish

 private:
  std::once_flag once_;
};

class ChainmailWork final : public c10d::Work {
 public:
  ChainmailWork(int rank, c10d::OpType type, std::uint64_t sequence,
                std::shared_ptr<Payload> payload, std::shared_ptr<ops::Operation> operation);

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  int sourceRank() const override;
  void synchronize() override;
  /// Throws the operation's own error (MismatchError, PeerError ...).
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::uint64_t getSequencenumber() const override;

 private:
  const std::uint64_t sequence_;
  const std::shared_ptr<Payload> payload_;
  const std::shared_ptr<ops::Operation> operation_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when first asked for
};

}  // namespace chainmail::internal
