// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A set of ranks that can reduce: the one interface behind which threads, shared memory, TCP
// and MPI (later NCCL) reach their peers. Algorithms compose a local and a cross Comm.
//
// Thread rule: one thread at a time per Comm. Collective rule: every rank of the Comm makes the
// same calls in the same order with equal OpContext::header; ranks in these calls are the Comm's
// own numbers 0..size()-1. All buffers are host memory.
//
// Every call returns only when this rank's buffers may be used again, and throws MismatchError,
// PeerError, TimeoutError or SystemError (the context's FailureState has it then, too). The Comm is
// dead after a throw.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>

#include "base/deadline.h"
#include "ops/comm/progress_tracker.h"
#include "ops/core/failure/failure_state.h"
#include "ops/message_header.h"
#include "ops/shard_tree.h"
#include "ops/types.h"

namespace chainmail::ops {

/// The bytes for, or of, each rank, by rank. They may lie anywhere, and may be empty.
using Parts = std::span<const std::span<std::byte>>;
using ConstParts = std::span<const std::span<const std::byte>>;

/// What an operation is and how long it may stand still; one per operation, shared by all its
/// steps.
struct OpContext {
  MessageHeader header;
  /// When the ranks of a Comm that is being made must have come. Once it is made, an operation may
  /// go on as long as it moves: deadline.limit() counts anew whenever something moves, see
  /// ProgressTracker.
  internal::Deadline deadline;
  FailureState* failure = nullptr;
  /// Called again and again by loops that wait, so that another Comm's transfers go on meanwhile.
  std::function<void()> progress;
  /// For Comms that are made in this operation: of their group. Null: each has its own.
  ProgressTracker* tracker = nullptr;
};

/// How elements are combined.
struct Reduction {
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;  ///< kAvg acts as kSum here: the factor is in `scale`
  /// Floating-point results are multiplied by this in float32 (float64 for kFloat64); with a
  /// compressed wire each contribution is, before it is rounded.
  double scale = 1.0;
  WireFormat wire = WireFormat::kNative;  ///< used by Comms between nodes only
  /// Of an all_reduce: elements before this one travel as `wire`, those from it on as they are.
  std::size_t compressed_count = std::numeric_limits<std::size_t>::max();
  /// Of an all_reduce on an integer wire: float32 beside the data, element by element, or null.
  /// What rounding has lost of what this rank contributes, and of results that it sends, so far:
  /// added before the next rounding and written anew. Only what this rank rounds is touched.
  std::byte* contribution_residual = nullptr;
  std::byte* result_residual = nullptr;
  RoundingError* rounding_error = nullptr;  ///< with residuals: added to, unless it is null
  /// A sum of shards of which every rank brings one node of their tree: what is added in which
  /// order (ops/shard_tree.h), and as what every addition is rounded. Slices are whole blocks of
  /// the wire then. The op is kSum, the scale 1. Null: in the order of the ranks.
  const TreeSum* tree = nullptr;
  WireFormat rounding = WireFormat::kNative;

  /// The same for a part of the data that begins with `element`.
  [[nodiscard]] Reduction from(std::size_t element) const noexcept;
};

/// A started operation of a Comm that can overlap others (the cross step).
class Request {
 public:
  virtual ~Request() = default;
  /// True once done; moves transfers forward.
  virtual bool test() = 0;
  /// Blocks until done.
  virtual void wait() = 0;
};

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;

  /// In place over `count` elements.
  virtual void all_reduce(std::byte* data, std::size_t count, const Reduction& reduction,
                          const OpContext& context) = 0;

  /// An all_reduce without a wait: shows this rank's elements and looks for those of its peers for
  /// some microseconds. True when it is done. False when it is not, for whatever reason:
  /// all_reduce() with the same arguments and header must be the next call then, and goes on with
  /// it or throws. Costs little more than moving the cache lines.
  [[nodiscard]] virtual bool try_all_reduce(std::byte* /*data*/, std::size_t /*count*/,
                                            const Reduction& /*reduction*/,
                                            const MessageHeader& /*header*/) noexcept {
    return false;
  }

  /// In place on `root`; the others' buffers stay as they are.
  virtual void reduce(std::byte* data, std::size_t count, const Reduction& reduction, int root,
                      const OpContext& context) = 0;

  /// Rank r gets the reduction of all ranks' input[r] in `output`, which may be input[rank()].
  /// Parts may be empty; part r is equally long on all ranks.
  virtual void reduce_scatter(ConstParts input, std::byte* output, const Reduction& reduction,
                              const OpContext& context) = 0;

  /// In place: rank r contributes parts[r], everybody gets all.
  virtual void all_gather(Parts parts, const OpContext& context) = 0;

  virtual void broadcast(std::byte* data, std::size_t bytes, int root,
                         const OpContext& context) = 0;

  /// send[r] goes to rank r; what comes from rank r lands in receive[r]. Nothing may overlap.
  virtual void all_to_all(ConstParts send, Parts receive, const OpContext& context) = 0;

  virtual void barrier(const OpContext& context) = 0;

  /// `bytes` of zeros, equally many on all ranks, where their peers can reach them if the Comm
  /// knows how: all_reduce then moves nothing twice when all ranks call it for the same place in
  /// what they got from the same call. May outlive the Comm.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes,
                                                            const OpContext& context);

  /// Starts an all_reduce that overlaps further calls; `data` belongs to the Comm until the request
  /// is done. Null: it is done already, as where the ranks' own cores do the work and there is
  /// nothing to overlap. Requests must be started in the same order on all ranks.
  [[nodiscard]] virtual std::unique_ptr<Request> start_all_reduce(std::byte* data,
                                                                  std::size_t count,
                                                                  const Reduction& reduction,
                                                                  const OpContext& context) {
    all_reduce(data, count, reduction, context);
    return nullptr;
  }
  /// Moves started requests forward without blocking.
  virtual void progress() {}

  /// Wakes and ends whatever is waiting in this Comm; callable from any thread, never throws.
  virtual void abort() noexcept = 0;

  /// `bytes` of zeros, the same ones on all ranks; null on all where ranks cannot reach each
  /// other's memory. May outlive the Comm.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate_common(std::size_t /*bytes*/,
                                                                   const OpContext& /*context*/) {
    return nullptr;
  }
};

/// allocate() of a Comm whose ranks cannot reach each other's memory.
[[nodiscard]] std::shared_ptr<std::byte> allocate_private(std::size_t bytes);

}  // namespace chainmail::ops
