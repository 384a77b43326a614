// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What can be said about a Collective without a peer: whether it can be right, how large it is,
// what its messages are marked with and how a person would write it.
//
// Pure functions.

#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/core/group_options.h"
#include "ops/core/operation.h"
#include "ops/message_header.h"
#include "ops/topology.h"

namespace chainmail::ops {

/// How an operation will be carried out: its own options, else those of the group.
struct Plan {
  Algorithm algorithm = Algorithm::kFlat;  ///< chosen already: never kAuto
  WireFormat wire = WireFormat::kNative;
  std::size_t bytes = 0;  ///< of the largest buffer on any rank, as far as this rank can tell
  MessageHeader header;   ///< without the sequence number
  /// What the sequence number counts: "" for collectives, else "0>1/5" for send and recv from
  /// rank 0 to 1 with tag 5, so that it may differ from rank to rank; "any>1/5" for a recv from
  /// any.
  std::string channel;
};

/// A submitted operation and how it is carried out: what error messages are about. The members are
/// fixed once it can be seen by other threads, but for `moved_bytes`.
class PlannedOperation : public Operation {
 public:
  PlannedOperation(Collective what, Plan how, std::chrono::milliseconds limit)
      : collective(std::move(what)), plan(std::move(how)), timeout(limit) {}

  bool is_done() const noexcept final { return is_done_.load(std::memory_order_acquire); }
  std::exception_ptr error() const final { return is_done() ? error_ : nullptr; }

  Collective collective;
  Plan plan;
  std::chrono::milliseconds timeout;  ///< how long it may stand still
  /// The rank at the other end of a send or receive; negative while that is open, and of others.
  virtual int peer_rank() const noexcept {
    return is_point_to_point(collective.kind) ? collective.root : -1;
  }
  /// Payload that this rank has sent or received: of a transfer from time to time, else when it
  /// failed. For whoever finds out why.
  std::atomic<std::uint64_t> moved_bytes{0};

 protected:
  std::atomic<bool> is_done_{false};
  std::exception_ptr error_;  ///< written before is_done_
};

/// What an operation that has ended looked like; kept for a while to explain disagreements.
struct PastOperation {
  std::string channel;
  MessageHeader header;
};

/// Throws InvalidArgument that says which argument and why.
void check_collective(const Collective& collective, int rank, const Topology& topology,
                      const GroupOptions& options);

/// Whether select_all_reduce() picks its algorithm; of other collectives nobody looks at `tuning`.
[[nodiscard]] bool leaves_choice(const Collective& collective,
                                 const GroupOptions& options) noexcept;

/// For a collective that was checked.
[[nodiscard]] Plan plan_collective(const Collective& collective, int rank, const Topology& topology,
                                   const GroupOptions& options);

/// all_reduce, reduce and reduce_scatter.
[[nodiscard]] bool reduces(OpKind kind) noexcept;

/// "all_reduce sum of float32 [3, 4]"; calls collective.describe_shapes.
[[nodiscard]] std::string describe_data(const Collective& collective);

/// describe_data() and how it is done. Root and peer are named by their `global_ranks`.
[[nodiscard]] std::string describe_call(const Collective& collective, const Plan& plan,
                                        const GroupOptions& options,
                                        std::span<const int> global_ranks);

/// The ranks' parts of an input or output that is split by rank; see Collective::input_parts.
[[nodiscard]] std::vector<std::span<const std::byte>> input_parts(const Collective& collective,
                                                                  int size);
[[nodiscard]] std::vector<std::span<std::byte>> output_parts(const Collective& collective,
                                                             int size);

/// Throws InvalidArgument when `carrier`, which protects nothing, would carry data of the group
/// between nodes although its options ask for protection. `instead`: what to do, "use ...".
void check_unprotected_transport(const GroupOptions& options, const Topology& topology,
                                 const std::string& carrier, const std::string& instead);

}  // namespace chainmail::ops
