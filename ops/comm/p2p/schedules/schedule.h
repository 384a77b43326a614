// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A collective call as rounds of messages with local work between them. Long calls are cut into
// pieces; each Schedule runs one piece after the other, several Schedules overlap.
//
// Not thread-safe. Nothing here blocks: advance() goes as far as finished transfers allow.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "ops/comm/comm.h"
#include "ops/comm/scratch.h"
#include "ops/comm/transport.h"
#include "ops/kernels/block_wire.h"

namespace chainmail::ops {

/// What a call works on; one for all pieces.
struct CollectiveArgs {
  std::uint64_t position = 0;
  MessageHeader header;
  Reduction reduction;
  std::byte* data = nullptr;
  std::size_t count = 0;                           ///< elements, or bytes where nothing is reduced
  std::vector<std::span<std::byte>> parts;         ///< all_gather; all_to_all: what is received
  std::vector<std::span<const std::byte>> inputs;  ///< reduce_scatter, all_to_all: for each rank
  std::size_t piece = 1;                           ///< elements (bytes) per piece
  std::size_t native_piece = 1;                    ///< all_reduce: of elements that are not rounded
  int root = 0;

  bool is_compressed() const noexcept {
    return ops::is_compressed(reduction.wire, reduction.dtype, reduction.op);
  }
  /// all_reduce: how many elements, in front, are rounded to the wire.
  std::size_t compressed_count() const noexcept {
    return is_compressed() ? std::min(reduction.compressed_count, count) : 0;
  }
  std::size_t element_bytes() const noexcept { return size_of(reduction.dtype); }
};

class Schedule {
 public:
  explicit Schedule(Transport& transport)
      : rank_(transport.rank()), size_(transport.size()), transport_(transport) {}
  virtual ~Schedule() = default;
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;

  /// How many pieces a call has; the same on all ranks.
  virtual std::size_t piece_count(const CollectiveArgs& args) const {
    return (args.count + args.piece - 1) / args.piece;
  }
  /// Rounds of every piece; the same on all ranks.
  virtual int round_count() const = 0;

  /// Begins a piece; `args` stay until it is done.
  void start(const CollectiveArgs& args, std::size_t piece);
  /// True when the piece is done.
  bool advance();
  /// Adds the peers that have not come to `ranks` and asks them when `inquires`.
  void visit_pending(std::vector<int>& ranks, bool inquires);
  bool has_met_non_finite() const noexcept { return (flags_ & kFlagNonFinite) != 0; }

 protected:
  /// What a message of this round is called; equal at both ends.
  virtual int step_of(int round) const { return round; }
  virtual void post_round(int round) = 0;
  virtual void finish_round(int /*round*/) {}

  /// Part of the current round. Both ends leave out messages of no bytes unless `even_empty`.
  void send(int peer, const std::byte* data, std::size_t bytes, bool even_empty = false);
  void receive(int peer, std::byte* data, std::size_t bytes, bool even_empty = false);
  const CollectiveArgs& args() const noexcept { return *args_; }
  std::size_t piece() const noexcept { return piece_; }
  /// The i-th rank after this one, around.
  int after(int i) const noexcept { return (rank_ + i % size_ + size_) % size_; }

  const int rank_;
  const int size_;
  /// kFlagNonFinite once rounding has met it, here or at a peer; travels in later headers.
  std::uint16_t flags_ = 0;

 private:
  template <typename T>
  T& next(std::deque<T>& transfers, std::size_t& used, int peer, std::size_t bytes);
  bool is_round_done() noexcept;

  Transport& transport_;
  const CollectiveArgs* args_ = nullptr;
  std::size_t piece_ = 0;
  int round_ = 0;
  // Deques, since transfers must not move; entries are used again.
  std::deque<Send> sends_;
  std::deque<Receive> receives_;
  std::size_t sends_used_ = 0;
  std::size_t receives_used_ = 0;
  std::size_t first_pending_send_ = 0;
  std::size_t first_pending_receive_ = 0;
};

/// Makes one of a kind, for a Comm over this Transport.
using ScheduleMaker = std::unique_ptr<Schedule> (*)(Transport&);

template <class Kind>
[[nodiscard]] std::unique_ptr<Schedule> make(Transport& transport) {
  return std::make_unique<Kind>(transport);
}

}  // namespace chainmail::ops
