// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Every collective of Comm over messages. Schedules are state machines: data of all started calls
// moves whenever any call of this Comm waits, tests or makes progress.
//
// Thread and collective rule as Comm. Requests must be gone before their Comm. progress() does not
// throw: an error is kept for the calls it belongs to and their FailureState.

#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "ops/comm/comm.h"
#include "ops/comm/p2p/call_queue.h"
#include "ops/comm/p2p/plan.h"
#include "ops/comm/transport.h"

namespace chainmail::ops {

class P2pComm final : public Comm {
 public:
  explicit P2pComm(std::unique_ptr<Transport> transport, const P2pOptions& options = {});

  int rank() const noexcept override { return transport_->rank(); }
  int size() const noexcept override { return transport_->size(); }

  /// Integers under ReduceOp::kAvg are divided by size() here, by the one who finishes them.
  void all_reduce(std::byte* data, std::size_t count, const Reduction& reduction,
                  const OpContext& context) override;
  /// All ranks reduce their share, which is faster than one that reduces all; what the others get
  /// lands in a copy.
  void reduce(std::byte* data, std::size_t count, const Reduction& reduction, int root,
              const OpContext& context) override;
  void reduce_scatter(ConstParts input, std::byte* output, const Reduction& reduction,
                      const OpContext& context) override;
  void all_gather(Parts parts, const OpContext& context) override;
  void broadcast(std::byte* data, std::size_t bytes, int root, const OpContext& context) override;
  void all_to_all(ConstParts send, Parts receive, const OpContext& context) override;
  void barrier(const OpContext& context) override;
  [[nodiscard]] std::unique_ptr<Request> start_all_reduce(std::byte* data, std::size_t count,
                                                          const Reduction& reduction,
                                                          const OpContext& context) override;
  void progress() override { queue_.progress(); }
  void abort() noexcept override { queue_.interrupt(); }

  const Transport& transport() const noexcept { return *transport_; }
  /// True once a rounding to a compressed wire has met inf or NaN on any rank, in a call that this
  /// rank has finished.
  bool has_met_non_finite() const noexcept { return queue_.has_met_non_finite(); }

 private:
  Call& all_reduce_call(std::byte* data, std::size_t count, const Reduction& reduction,
                        const OpContext& context);

  ProgressTracker own_tracker_;
  std::unique_ptr<Transport> transport_;
  P2pOptions options_;
  CallQueue queue_;
  Scratch reduce_copy_;
};

}  // namespace chainmail::ops
