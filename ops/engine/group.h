// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A group: the ranks that communicate, their local and cross Comms, one ordered queue of
// collectives, sends and receives beside it, and the threads that make progress. What the c10d
// backend and the Communicator are made of.
//
// Thread rule: any thread may submit; collectives of one group run in call order. Collective rule:
// every rank submits the same collectives in the same order. After a failure the group is dead and
// every call throws the first error. No torch, no global state; several groups may coexist.

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

#include "ops/algorithms/tuning.h"
#include "ops/engine/failure_state.h"
#include "ops/engine/rendezvous.h"
#include "ops/topology.h"
#include "ops/types.h"

namespace chainmail::ops {

class CallbackExecutor;

struct GroupOptions {
  std::string name = "world";  ///< unique in the job; prefixes keys and messages
  std::uint32_t generation = 0;
  Algorithm algorithm = Algorithm::kAuto;
  Tuning tuning;  ///< what kAuto picks between nodes (CHAINMAIL_TUNING); equal on all ranks
  /// Without a table: kAuto measures one, within 50 ms, when it is first needed (CHAINMAIL_TUNING).
  bool measures_tuning = false;
  WireFormat wire = WireFormat::kNative;  ///< of float32 means; see wire_of()
  /// An operation fails when for so long nothing of it has moved, as far as this rank can learn.
  std::chrono::milliseconds timeout = std::chrono::minutes{10};
  CrossCarrier cross = CrossCarrier::kTcp;  ///< equal on all ranks
  bool use_shared_memory = true;  ///< false: TCP inside the node too (CHAINMAIL_LOCAL=tcp)
  bool use_checksum = true;       ///< CRC-32C of what goes over TCP; equal or not between ranks
  /// Of what goes over TCP, equal on all ranks (CHAINMAIL_ENCRYPT). Needs `secret`; what would
  /// carry data between nodes without it is refused.
  Encryption encryption = Encryption::kOff;
  std::string interface;  ///< address or name of the network interface; empty: chosen
  std::string secret;     ///< of the job; proves on TCP that a peer belongs to it
  std::string host;       ///< of this rank, for messages
  std::size_t chunk_bytes = std::size_t{1} << 20;  ///< of the pipeline between nodes
};

/// Collective::root of a kRecv that takes the next message with its tag from whichever rank.
inline constexpr int kAnyRank = -1;

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
  std::optional<std::chrono::milliseconds> timeout;
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

/// News from outside the data path (launcher, store): lets a group learn of a failure, and tell.
class FailureNews {
 public:
  virtual ~FailureNews() = default;
  /// `state.fail()` will be called with a PeerError when a rank of the job is reported dead, or
  /// with the error another rank announced for group `group`. Until unsubscribed.
  virtual void subscribe(const std::string& group, const std::vector<int>& global_ranks,
                         std::shared_ptr<FailureState> state) = 0;
  virtual void unsubscribe(const std::string& group) = 0;
  /// Tells the other ranks of `group` that it is dead and why. Never throws.
  virtual void announce(const std::string& group, const std::exception_ptr& error) noexcept = 0;
};

class Group {
 public:
  virtual ~Group() = default;

  virtual int rank() const noexcept = 0;
  virtual int size() const noexcept = 0;
  virtual const Topology& topology() const noexcept = 0;
  virtual const GroupOptions& options() const noexcept = 0;

  /// Appends an operation. Throws InvalidArgument for arguments that cannot be right on any rank,
  /// or the group's error when it is dead.
  virtual std::shared_ptr<Operation> submit(Collective collective) = 0;
  /// submit() and wait, in the caller when nothing is queued: the fastest way for small operations.
  virtual void run(const Collective& collective) = 0;

  /// Collective, and ordered like one: `bytes` of zeros, equally many on all ranks, for tensors
  /// that will be reduced again and again. On one node (CHAINMAIL_LOCAL=shm) the ranks map each
  /// other's, and an all_reduce that all of them call for the same place in it works there without
  /// copying. Anywhere else, and for anything else, it is memory as any other. May outlive the
  /// group; after a failure do not go on with what is in it, nor put anything there: a rank that
  /// was stopped meanwhile may still write its share of the failed operation.
  [[nodiscard]] virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  /// Kills the group: operations in flight and later ones end with `error` on this rank, and the
  /// other ranks are told.
  virtual void abort(std::exception_ptr error) = 0;
  /// Waits for what was submitted, then closes connections. Receives that nothing has come for end
  /// with an error instead. Idempotent; the destructor does it, without waiting when the group has
  /// failed.
  virtual void shutdown() = 0;
  virtual std::exception_ptr error() const = 0;
  /// Collectives submitted so far.
  virtual std::uint64_t sequence() const noexcept = 0;
  /// In place of options().timeout, for later operations and for shutdown().
  virtual void set_timeout(std::chrono::milliseconds timeout) = 0;
  /// Who runs callbacks and frees what operations have kept; null where operations end in their
  /// callers.
  virtual std::shared_ptr<CallbackExecutor> callbacks() const = 0;
};

/// Creates this rank's end of a group; collective over the ranks of `topology`. `rendezvous` must
/// be the group's own (no other group uses its keys). `global_ranks[i]` is the job's rank of group
/// rank i, for messages and news. Connections are made when first needed.
/// Throws InvalidArgument (kSingleNode over several nodes, MPI that cannot be used, encryption
/// without a secret or over MPI), TimeoutError, SystemError, MpiError.
[[nodiscard]] std::shared_ptr<Group> create_group(int rank, Topology topology,
                                                  std::shared_ptr<Rendezvous> rendezvous,
                                                  GroupOptions options,
                                                  std::vector<int> global_ranks = {},
                                                  std::shared_ptr<FailureNews> news = nullptr);

}  // namespace chainmail::ops
