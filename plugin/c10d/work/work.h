// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A running collective as c10d's callers see it: Work and Future over an engine operation.
//
// Thread-safe. The tensors live until the operation is done even if the Work is dropped.

#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "ops/engine/group.h"

namespace chainmail::internal {

/// The caller's tensors of an operation.
struct PayloadContents {
  std::vector<at::Tensor> results;             ///< what result() and the Future give
  std::vector<std::vector<at::Tensor>> lists;  ///< the same by lists, where c10d has several
  std::vector<at::Tensor> shown;               ///< for error messages; empty: the results
  /// With the results, all that the operation reads or writes: the caller's tensors and packed
  /// copies. Filled by buffers.h and ChainmailBackend::launch.
  std::vector<at::Tensor> keep;
  std::function<void()> copy_out;  ///< from packed copies to results, after success
  std::function<void()> at_end;    ///< of the profiler; before anybody sees that there is an end
  std::exception_ptr copy_error;   ///< what it threw, maybe Python's; valid after Payload::finish
};

/// The tensors of one operation. The operation owns it (Collective::keep), and so does the Work.
/// If a thread of the engine drops the last reference, `executor` frees its contents, since tensors
/// may belong to Python.
class Payload : public PayloadContents {
 public:
  explicit Payload(std::shared_ptr<ops::CallbackExecutor> executor = nullptr) noexcept;
  Payload(const Payload&) = delete;
  Payload& operator=(const Payload&) = delete;
  ~Payload();

  /// Appends to `keep` unless it has `tensor` last, or `results` has it first.
  void keep_alive(const at::Tensor& tensor);

  /// Of the Future: a list of tensors, or of lists where c10d has several.
  c10::TypePtr type() const;
  c10::IValue value() const;

  /// Called by the caller's thread, before finish(), which will run copy_out in its present mode.
  /// False when there is nothing for finish() to do.
  bool begin() noexcept;
  /// Runs copy_out and at_end once; concurrent callers wait for that. Called when the operation is
  /// done. Not with Python's lock held, which tensors of Python's own kinds may need.
  void finish(const ops::Operation& operation) noexcept;
  /// Whether it has, or there is nothing to do. Never waits.
  bool is_finished() const noexcept { return is_finished_.load(std::memory_order_acquire); }
  /// In a thread of the executor; without one at once.
  void run_later(std::function<void()> task);

 private:
  const std::shared_ptr<ops::CallbackExecutor> executor_;
  bool is_inference_ = false;
  std::once_flag once_;
  std::atomic<bool> is_finished_ = true;
};

/// How long Work::wait(timeout) waits: without limit for 0, not at all for a negative timeout,
/// which is what is left of a time that has passed.
[[nodiscard]] std::optional<std::chrono::milliseconds> limit_of_wait(
    std::chrono::milliseconds timeout);

/// What the Works of a group's operations have in common, on CPUs and on devices.
class GroupWork : public c10d::Work {
 public:
  bool isSuccess() const final { return is_finished() && !exception(); }
  std::vector<at::Tensor> result() override;
  void synchronize() final { wait(); }
  /// Ends the operation and with it its group, since the other ranks cannot know how far it got.
  void abort() final;
  std::uint64_t getSequencenumber() const final { return sequence_; }

 protected:
  GroupWork(int rank, c10d::OpType type, std::uint64_t sequence, std::shared_ptr<Payload> payload,
            std::weak_ptr<ops::Group> group);
  /// Of the operation itself.
  virtual bool is_done() const = 0;
  /// Its results are in their places, too. Python's callers have its lock.
  virtual bool is_finished() const { return is_done(); }
  /// To be called at the end of wait(): torch's graphs look for what nobody has waited for.
  void note_waited();

  const std::shared_ptr<Payload> payload_;

 private:
  const std::uint64_t sequence_;
  const std::weak_ptr<ops::Group> group_;
};

class ChainmailWork final : public GroupWork {
 public:
  ChainmailWork(int rank, c10d::OpType type, std::uint64_t sequence,
                std::shared_ptr<Payload> payload, std::shared_ptr<ops::Operation> operation,
                std::weak_ptr<ops::Group> group);

  bool isCompleted() override { return is_finished(); }
  std::exception_ptr exception() const override;
  std::vector<at::Tensor> result() override;
  int sourceRank() const override;
  /// Once the operation is done: puts results in their places, and gives the error. May wait for
  /// another thread that does.
  std::exception_ptr finish() const noexcept;
  /// Throws the operation's own error (MismatchError, PeerError ...); TimeoutError when `timeout`
  /// passes first, and the operation goes on. No timeout: that of the operation.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;

  const std::shared_ptr<Payload>& payload() const noexcept { return payload_; }
  const std::shared_ptr<ops::Operation>& operation() const noexcept { return operation_; }

 private:
  bool is_done() const override { return operation_->is_done(); }
  bool is_finished() const override { return is_done() && payload_->is_finished(); }
  void on_end(std::function<void(const std::exception_ptr&)> complete) const;

  const std::shared_ptr<ops::Operation> operation_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made when first asked for
};

}  // namespace chainmail::internal
