// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an operation is: how a caller describes it, and the handle that it gets for it.
//
// Collective is a plain value; Operation is thread-safe.

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/node_cut.h"
#include "ops/shard_tree.h"
#include "ops/types.h"

namespace chainmail::ops {

/// Collective::root of a kRecv that takes the next message with its tag from whichever rank.
inline constexpr int kAnyRank = -1;

/// What an integer wire has rounded away of an all_reduce that is made again and again, to be added
/// the next time. Without it every exchange loses as much anew.
struct WireFeedback {
  /// float32 beside the all_reduce's elements, as many, private to this rank and zeros at first: of
  /// what it contributes, and of results that it owns. What a rank does not round between the nodes
  /// is never touched: of fresh pages only the ranks' own shares take memory. Owners follow from
  /// count, algorithm, cut and chunks: as long as those stay, residuals stay with them.
  std::byte* contributions = nullptr;
  std::byte* results = nullptr;
  std::uint64_t exchanges = 0;  ///< since both were zeros; equal on all ranks
  /// What this rank rounds of the exchange is added to it while the operation runs; null: not
  /// asked. Costs another pass over what is in the caches.
  RoundingError* error = nullptr;
};

/// One operation as the caller describes it. Buffers stay the caller's and must live until the
/// operation is done, also when its submitter has stopped waiting: `keep` sees to that. Which
/// members matter depends on `kind`.
struct Collective {
  OpKind kind = OpKind::kAllReduce;
  DataType dtype = DataType::kFloat32;
  ReduceOp reduce_op = ReduceOp::kSum;
  /// Elements: of the whole tensor for all_reduce, reduce, broadcast, send, recv; of one rank's
  /// part for all_gather, reduce_scatter, gather, scatter.
  std::size_t count = 0;
  /// all_reduce, reduce, broadcast, recv: `output` in place. send: `input`. all_gather: `input` of
  /// count, `output` of size * count (may already hold the input at this rank's place); ranks may
  /// bring different amounts when `receive_counts`, equal on all ranks, says how many elements each
  /// brings.
  /// reduce_scatter: `input` of size * count, `output` of count. gather: `output` on root only;
  /// scatter: `input` on root only. all_to_all: both, split by `send_counts`, `receive_counts`.
  ///
  /// send and recv stand in no queue: they begin when submitted and wait for their peer alone, so
  /// ranks may all send, or all receive, first, and tags may meet in any order. The n-th send of a
  /// rank to another with a tag meets the n-th recv of that one from it with that tag; they must
  /// agree in length. A recv from kAnyRank takes the next message with its tag that no
  /// earlier recv has, of whichever rank; see Operation::source_rank(). A send may be done before
  /// its receiver has come, one of more than 256 KiB is not. The time limit counts from submit(),
  /// from the end of the transfer before it between the same ranks with the same tag, or from when
  /// something of it, or of what goes before it over the same connection, has last moved.
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  /// In place of `input` or `output` where the ranks' parts do not follow each other: a pointer per
  /// rank. input_parts: reduce_scatter, scatter, all_to_all; output_parts: all_gather, gather,
  /// all_to_all.
  std::vector<const std::byte*> input_parts;
  std::vector<std::byte*> output_parts;
  int root = 0;  ///< root, or the peer of send and recv; kAnyRank for recv
  std::uint32_t tag = 0;
  std::vector<std::size_t> send_counts;     ///< elements per rank; empty: `count` for each
  std::vector<std::size_t> receive_counts;  ///< elements per rank; empty: `count` from each
  std::optional<Algorithm> algorithm;       ///< this operation only
  std::optional<WireFormat> wire;           ///< this operation only, sums of float32 too
  /// all_reduce: elements before this one travel as the wire says, those from it on as they are.
  std::optional<std::size_t> compressed_count;
  /// all_reduce on an integer wire; unused where nothing travels between nodes.
  std::optional<WireFeedback> feedback;
  std::optional<std::chrono::milliseconds> timeout;
  /// all_reduce, kSum of a floating-point type, in host memory: `output` becomes the sum of all
  /// shards along their tree, with the same bits whoever has which of them. Equal on all ranks. A
  /// group's wire counts as it does for means, and rounds on one node, too.
  std::shared_ptr<const ShardCut> shards;
  /// With `shards`: this rank's nodes of the tree, shards->pieces_of(rank), of `count` elements
  /// each. Undefined afterwards, but for one that is `output`. On a 16-bit wire each was rounded as
  /// it was added (round_as_sent(), sum_along_tree()).
  std::vector<std::byte*> pieces;
  /// all_reduce, kSum or kAvg of a floating-point type, in host memory: an owner's slice of
  /// `output` and the common elements become what two_dimensional would give, bit for bit; the rest
  /// is undefined afterwards. all_gather: inside each node, in place in `output` of `count`
  /// elements, every rank gets the common ones from their owners; nothing travels between nodes
  /// unless the cut is over them.
  /// Equal on all ranks.
  std::shared_ptr<const NodeCut> cut;
  /// allocate: where the memory of `count` bytes goes; see Group::allocate().
  std::shared_ptr<std::byte>* allocated = nullptr;
  /// Hash of what must agree besides kind, dtype and count, or else it is a MismatchError: shapes.
  std::uint32_t shape_hash = 0;
  /// Called just before the operation begins, by the thread that runs it: sets `input`, `output`
  /// and `receive_counts` of an all_gather to what an earlier operation of this group has brought.
  /// What it throws ends the operation, and with it the group.
  std::function<void(Collective&)> prepare;
  /// Owns the buffers above and whatever else the operation is to find alive. Let go of when the
  /// operation is done and nobody holds it any more; in threads of the engine while DefersRelease
  /// is active (callbacks/user_code.h).
  std::shared_ptr<const void> keep;
  /// Writes shapes for the error message, such as "[3, 4]". Called when ranks disagree or an
  /// operation takes long, from any thread and perhaps as the operation ends: capture by value, or
  /// what `keep` keeps.
  std::function<std::string()> describe_shapes;
  /// False: the caller waits at once; runs in the caller when the queue is empty.
  bool is_async = true;
  bool is_common = false;  ///< allocate: see allocate_common()
};

/// A submitted operation.
class Operation {
 public:
  virtual ~Operation() = default;
  virtual bool is_done() const noexcept = 0;
  /// Blocks until done and throws its error. Runs the operation in the caller if nobody has begun
  /// it yet and it is next. With a timeout throws TimeoutError when that passes first; the
  /// operation itself goes on.
  virtual void wait(std::optional<std::chrono::milliseconds> timeout = std::nullopt) = 0;
  /// Null while running and after success.
  virtual std::exception_ptr error() const = 0;
  /// Called once when done: in a thread of the group's executor, which holds nothing of ours, or at
  /// once in the caller when that is so already. Must not throw.
  virtual void on_done(std::function<void()> callback) = 0;
  /// The rank that a kRecv got its message from, once it is done; -1 before and for all else.
  virtual int source_rank() const noexcept = 0;
};

[[nodiscard]] constexpr bool is_point_to_point(OpKind kind) noexcept {
  return kind == OpKind::kSend || kind == OpKind::kRecv;
}

/// The sum of integers is divided once, at the end.
[[nodiscard]] inline bool is_integer_average(const Collective& collective) noexcept {
  return collective.reduce_op == ReduceOp::kAvg && !is_floating_point(collective.dtype);
}

[[nodiscard]] inline bool is_from_any_rank(const Collective& collective) noexcept {
  return collective.kind == OpKind::kRecv && collective.root == kAnyRank;
}

}  // namespace chainmail::ops
