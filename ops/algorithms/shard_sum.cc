// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/shard_sum.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "ops/comm/scratch.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops {
namespace {

using Bounds = std::vector<std::size_t>;  // ascending, in elements; one more than there are slices

/// The first `owners` of `size` ranks share the elements from `begin` on, by whole blocks of the
/// wire.
Bounds divide(std::size_t begin, std::size_t count, std::size_t owners, std::size_t size) {
  const std::size_t slice = internal::round_up((count + owners - 1) / owners, kWireBlock);
  Bounds bounds;
  for (std::size_t rank = 0; rank <= size; ++rank) {
    bounds.push_back(begin + std::min(count, std::min(rank, owners) * slice));
  }
  return bounds;
}

/// One Comm's part: slices of pieces to those who add them, and slices of the sum to all.
class Exchange {
 public:
  Exchange(const ShardContribution& own, WireFormat wire)
      : dtype_(own.dtype), rounding_(own.wire), wire_(wire) {}

  /// Adds what all ranks' pieces hold between bounds[rank] and bounds[rank + 1]. `own` point to
  /// element `base`, `results`, one for each of level.sum.results, to bounds[rank].
  void add(Comm& comm, const ShardLevel& level, std::span<std::byte* const> own, std::size_t base,
           std::span<std::byte* const> results, const Bounds& bounds, const OpContext& context) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const auto self = static_cast<std::size_t>(comm.rank());
    pack(own, base, bounds, self);
    const std::size_t length = bounds[self + 1] - bounds[self];
    const std::size_t message = message_bytes(length);
    std::byte* at = received_.get(message * level.piece_count);
    receive_.assign(ranks, {});
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (rank == self) continue;
      receive_[rank] = {at, message * level.pieces[rank].size()};
      at += receive_[rank].size();
    }
    comm.all_to_all(send_, receive_, context);
    if (length == 0) return;
    find_sources(level, own, (bounds[self] - base) * element_bytes(), length, self);
    targets_.clear();
    for (std::byte* const& result : results) targets_.emplace_back(&result, 1);
    sum_along_tree(targets_, sources_, level.sum, length, dtype_, rounding_);
  }

  /// Gives everybody's slice of `data`, which points to element `base`, to all.
  void share(Comm& comm, std::byte* data, std::size_t base, const Bounds& bounds,
             const OpContext& context) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const auto self = static_cast<std::size_t>(comm.rank());
    const auto slice = [&](std::size_t rank) {
      return data + (bounds[rank] - base) * element_bytes();
    };
    const auto length = [&](std::size_t rank) { return bounds[rank + 1] - bounds[rank]; };
    std::size_t all = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) all += message_bytes(length(rank));
    std::byte* at = is_compressed() ? received_.get(all) : nullptr;
    receive_.assign(ranks, {});
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::size_t bytes = message_bytes(length(rank));
      receive_[rank] = {is_compressed() ? at : slice(rank), bytes};
      if (is_compressed()) at += bytes;
    }
    if (is_compressed()) encode(receive_[self].data(), slice(self), length(self));
    comm.all_gather(receive_, context);
    if (!is_compressed()) return;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (rank != self) widen_from_wire(slice(rank), receive_[rank].data(), length(rank), wire_);
    }
  }

 private:
  bool is_compressed() const noexcept { return wire_ != WireFormat::kNative; }
  std::size_t element_bytes() const noexcept { return size_of(dtype_); }
  std::size_t message_bytes(std::size_t count) const noexcept {
    return is_compressed() ? wire_size(count) : count * element_bytes();
  }
  void encode(std::byte* message, const std::byte* elements, std::size_t count) const {
    static_cast<void>(round_to_wire(message, elements, count, 1.0, wire_));
  }

  /// send_: for every other rank its slice of each of this rank's pieces.
  void pack(std::span<std::byte* const> own, std::size_t base, const Bounds& bounds,
            std::size_t self) {
    const std::size_t ranks = bounds.size() - 1;
    std::size_t all = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      all += message_bytes(bounds[rank + 1] - bounds[rank]) * own.size();
    }
    std::byte* at = packed_.get(all);
    send_.assign(ranks, {});
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      if (rank == self) continue;
      const std::size_t count = bounds[rank + 1] - bounds[rank];
      const std::size_t bytes = message_bytes(count);
      send_[rank] = {at, bytes * own.size()};
      for (const std::byte* piece : own) {
        const std::byte* elements = piece + (bounds[rank] - base) * element_bytes();
        if (is_compressed()) encode(at, elements, count);
        if (!is_compressed() && bytes != 0) copy_memory(at, elements, bytes);
        at += bytes;
      }
    }
  }

  /// sources_: all ranks' pieces of this rank's slice, in the order of the shards. The slice begins
  /// `offset` bytes into this rank's own.
  void find_sources(const ShardLevel& level, std::span<std::byte* const> own, std::size_t offset,
                    std::size_t length, std::size_t self) {
    const std::size_t bytes = length * element_bytes();
    std::byte* wide = is_compressed() ? widened_.get(bytes * level.piece_count) : nullptr;
    by_rank_.clear();
    for (std::size_t rank = 0; rank < level.pieces.size(); ++rank) {
      for (std::size_t k = 0; k < level.pieces[rank].size(); ++k) {
        if (rank == self) {
          by_rank_.push_back(own[k] + offset);
          continue;
        }
        const std::byte* message = receive_[rank].data() + k * message_bytes(length);
        if (is_compressed()) {
          widen_from_wire(wide, message, length, wire_);
          message = wide;
          wide += bytes;
        }
        by_rank_.push_back(message);
      }
    }
    sources_.clear();
    for (const std::size_t i : level.order) sources_.push_back(by_rank_[i]);
  }

  const DataType dtype_;
  const WireFormat rounding_;
  const WireFormat wire_;
  Scratch packed_;
  Scratch received_;
  Scratch widened_;
  std::vector<std::span<const std::byte>> send_;
  std::vector<std::span<std::byte>> receive_;
  std::vector<const std::byte*> by_rank_;
  std::vector<const std::byte*> sources_;
  std::vector<std::span<std::byte* const>> targets_;
};

/// One sum on its way, some elements at a time.
class ShardSum {
 public:
  ShardSum(const Comms& comms, const ShardPlan& plan, const ShardContribution& own,
           const OpContext& context)
      : comms_(comms),
        plan_(plan),
        own_(own),
        context_(context),
        element_bytes_(size_of(own.dtype)),
        inside_(own, WireFormat::kNative),
        between_(own, comms.topology->node_count() > 1 ? own.wire : WireFormat::kNative) {}

  void alone() const {
    std::vector<const std::byte*> sources(own_.pieces.begin(), own_.pieces.end());
    const std::span<std::byte* const> target(&own_.output, 1);
    sum_along_tree({&target, 1}, sources, plan_.flat().sum, own_.count, own_.dtype, own_.wire);
  }

  /// What travels are whole tensors, as in any all-reduce; only the order of the sum is another.
  void one_each(Algorithm algorithm, std::size_t chunk_bytes) const {
    std::byte* const piece = own_.pieces[0];
    if (piece != own_.output && own_.count != 0) {
      copy_memory(own_.output, piece, own_.count * element_bytes_);
    }
    Reduction reduction{.dtype = own_.dtype, .wire = own_.wire, .rounding = own_.wire};
    all_reduce(algorithm, comms_, own_.output, own_.count, reduction, context_, chunk_bytes,
               &plan_);
  }

  /// Nothing to add: ranks which disagree about that still find out.
  void meet() {
    if (comms_.flat != nullptr && comms_.flat != comms_.local) comms_.flat->barrier(context_);
    if (comms_.local != nullptr) comms_.local->barrier(context_);
    if (comms_.cross != nullptr) comms_.cross->barrier(context_);
  }

  void flat(std::size_t begin, std::size_t count) {
    Comm& all = comms_.flat != nullptr ? *comms_.flat : *comms_.local;  // the same on one node
    add_and_share(all, plan_.flat(), own_.pieces, 0, begin, count);
  }

  void by_nodes(std::size_t begin, std::size_t count, int owners) {
    if (comms_.local == nullptr) {
      if (comms_.cross == nullptr) return;
      return add_and_share(*comms_.cross, plan_.cross(), own_.pieces, 0, begin, count);
    }
    const auto ranks = static_cast<std::size_t>(comms_.local->size());
    const auto self = static_cast<std::size_t>(comms_.local->rank());
    const Bounds bounds = divide(begin, count, static_cast<std::size_t>(owners), ranks);
    const std::size_t length = bounds[self + 1] - bounds[self];
    inside_.add(*comms_.local, plan_.local(), own_.pieces, 0, node_pieces(length), bounds,
                context_);
    if (length != 0) {
      add_and_share(*comms_.cross, plan_.cross(), node_pieces_, bounds[self], bounds[self], length);
    }
    inside_.share(*comms_.local, own_.output, 0, bounds, context_);
  }

 private:
  /// `pieces` point to element `base`.
  void add_and_share(Comm& comm, const ShardLevel& level, std::span<std::byte* const> pieces,
                     std::size_t base, std::size_t begin, std::size_t count) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    const Bounds bounds = divide(begin, count, ranks, ranks);
    std::byte* const result =
        own_.output + bounds[static_cast<std::size_t>(comm.rank())] * element_bytes_;
    between_.add(comm, level, pieces, base, {&result, 1}, bounds, context_);
    between_.share(comm, own_.output, 0, bounds, context_);
  }

  std::span<std::byte* const> node_pieces(std::size_t length) {
    const std::size_t count = plan_.local().sum.results.size();
    std::byte* memory = node_memory_.get(count * length * element_bytes_);
    node_pieces_.clear();
    for (std::size_t k = 0; k < count; ++k) {
      node_pieces_.push_back(memory + k * length * element_bytes_);
    }
    return node_pieces_;
  }

  const Comms& comms_;
  const ShardPlan& plan_;
  const ShardContribution& own_;
  const OpContext& context_;
  const std::size_t element_bytes_;
  Exchange inside_;
  Exchange between_;
  Scratch node_memory_;
  std::vector<std::byte*> node_pieces_;
};

}  // namespace

void all_reduce_shards(Algorithm algorithm, const Comms& comms, const ShardPlan& plan,
                       const ShardContribution& own, const OpContext& context,
                       std::size_t chunk_bytes) {
  ShardSum sum(comms, plan, own, context);
  if (comms.topology->size() == 1) return sum.alone();
  const bool is_by_nodes =
      comms.topology->node_count() > 1 &&
      (algorithm == Algorithm::kHierarchical || algorithm == Algorithm::kTwoDimensional);
  if (plan.flat().is_one_each && (!is_by_nodes || plan.cross().is_one_each)) {
    return sum.one_each(algorithm, chunk_bytes);
  }
  if (own.count == 0) return sum.meet();
  const int owners = algorithm == Algorithm::kHierarchical ? 1 : comms.topology->min_local_size();
  const std::size_t chunk =
      internal::round_up(std::max<std::size_t>(chunk_bytes / size_of(own.dtype), 1), kWireBlock);
  for (std::size_t begin = 0; begin < own.count; begin += chunk) {
    const std::size_t count = std::min(chunk, own.count - begin);
    is_by_nodes ? sum.by_nodes(begin, count, owners) : sum.flat(begin, count);
  }
}

}  // namespace chainmail::ops
