// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// An engine group whose operations are carried out by a c10d::Backend of torch's, one at a time and
// in the caller. No fingerprints: what happens when ranks disagree is up to torch's backend.
//
// Thread-safe. After a failure the group is dead, as ours are.

#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "ops/core/failure/failure_state.h"
#include "ops/engine/group.h"

namespace chainmail::internal {

class TorchGroup final : public ops::Group {
 public:
  TorchGroup(c10::intrusive_ptr<c10d::Backend> backend, ops::Topology topology,
             ops::GroupOptions options);

  int rank() const noexcept override { return rank_; }
  int size() const noexcept override { return topology_.size(); }
  const ops::Topology& topology() const noexcept override { return topology_; }
  const ops::GroupOptions& options() const noexcept override { return options_; }

  std::shared_ptr<ops::Operation> submit(ops::Collective collective) override;
  void run(const ops::Collective& collective) override;
  [[nodiscard]] std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void abort(std::exception_ptr error) override;
  void shutdown() override;
  std::exception_ptr error() const override { return failure_.error(); }
  void on_failure(std::function<void(const std::exception_ptr&)> listener) override {
    failure_.on_failure(std::move(listener));
  }
  std::uint64_t sequence() const noexcept override { return sequence_; }
  void set_timeout(std::chrono::milliseconds timeout) override;
  std::shared_ptr<ops::CallbackExecutor> callbacks() const override { return nullptr; }

 private:
  void carry_out(const ops::Collective& collective);
  void all_reduce(const ops::Collective& collective);
  void all_gather(const ops::Collective& collective);
  void all_gather_parts(const ops::Collective& collective);

  const int rank_;
  const ops::Topology topology_;
  const ops::GroupOptions options_;
  const std::string name_;                     // of the backend, for messages
  std::mutex mutex_;                           // one operation at a time
  c10::intrusive_ptr<c10d::Backend> backend_;  // null after shutdown
  std::atomic<std::uint64_t> sequence_{0};
  ops::FailureState failure_;
};

}  // namespace chainmail::internal
