// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/all_reduce.h"

#include <algorithm>
#include <array>
#include <memory>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "ops/kernels/cpu/kernels.h"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops {
namespace {

// Chunks between the nodes at one time.
constexpr std::size_t kPipelineDepth = 3;
// Below this a chunk's fixed costs (two local synchronisations, one message) show.
constexpr std::size_t kSmallestChunkBytes = std::size_t{128} << 10;
// Slices and chunks start at multiples of this many elements: whole cache lines for every dtype.
constexpr std::size_t kAlignElements = 64;

/// On a wire that rounds, and where sums may be rounded as on one, slices and chunks are whole
/// blocks, which are the same then however many owners there are.
std::size_t unit_of(const Reduction& reduction, const ShardPlan* shards) {
  const bool has_blocks =
      shards != nullptr || is_compressed(reduction.wire, reduction.dtype, reduction.op);
  return has_blocks ? kWireBlock : kAlignElements;
}

/// Ascending bounds of `size` slices of which the first `owners` share `count` elements.
void split_among(std::size_t count, std::size_t owners, std::size_t unit,
                 std::span<std::size_t> bounds) {
  const std::size_t slice = internal::round_up((count + owners - 1) / owners, unit);
  for (std::size_t rank = 0; rank < bounds.size(); ++rank) {
    bounds[rank] = std::min(count, std::min(rank, owners) * slice);
  }
}

/// How much of `reduction.scale` the local step applies: all on one node. float16 and bfloat16 sums
/// are stored between the steps, so a mean is scaled by 1/(ranks of the largest node) before it is
/// stored: the stored value is no larger than the largest contribution, and no smaller than needed.
double local_scale(const Reduction& reduction, const Topology& topology) {
  if (topology.node_count() == 1) return reduction.scale;
  const bool is_narrow =
      reduction.dtype == DataType::kFloat16 || reduction.dtype == DataType::kBFloat16;
  if (!is_narrow || reduction.scale == 1.0) return 1.0;
  std::size_t largest = 1;
  for (int node = 0; node < topology.node_count(); ++node) {
    largest = std::max(largest, topology.ranks_of_node(node).size());
  }
  return 1.0 / static_cast<double>(largest);
}

/// One all_reduce on its way through the three steps.
class Pipeline {
 public:
  Pipeline(const Comms& comms, std::byte* data, const Reduction& reduction,
           const OpContext& context, std::size_t owners, const ShardPlan* shards)
      : comms_(comms),
        data_(data),
        owners_(owners),
        unit_(unit_of(reduction, shards)),
        element_bytes_(size_of(reduction.dtype)),
        local_reduction_(reduction),
        cross_reduction_(reduction),
        context_(context),
        local_context_(context) {
    const int local_size = comms.local == nullptr ? 1 : comms.local->size();
    me_ = comms.local == nullptr ? 0 : static_cast<std::size_t>(comms.local->rank());
    bounds_.resize(static_cast<std::size_t>(local_size) + 1);
    slices_.resize(static_cast<std::size_t>(local_size));
    inputs_.resize(slices_.size());
    local_reduction_.wire = WireFormat::kNative;
    local_reduction_.scale = local_scale(reduction, *comms.topology);
    cross_reduction_.scale = reduction.scale / local_reduction_.scale;
    if (shards != nullptr) {
      local_reduction_.tree = &shards->local().sum;
      cross_reduction_.tree = &shards->cross().sum;
    }
    if (Comm* cross = comms.cross; cross != nullptr) {
      local_context_.progress = [cross] { cross->progress(); };
    }
  }

  /// Reduces a chunk inside the node and sends this rank's slice on its way.
  [[nodiscard]] std::unique_ptr<Request> begin(std::byte* chunk, std::size_t count) {
    split(chunk, count);
    return begin_slices(count == 0);
  }

  /// Waits for the other nodes and gives the result to the whole node.
  void finish(Request* request, std::byte* chunk, std::size_t count) {
    if (request != nullptr) request->wait();
    if (comms_.local == nullptr) return;
    split(chunk, count);
    comms_.local->all_gather(slices_, local_context_);
  }

  /// The same with the slices of a cut, of which each chunk has a piece of `length` elements.
  [[nodiscard]] std::unique_ptr<Request> begin(const NodeCut& cut, std::byte* data,
                                               std::size_t piece, std::size_t length) {
    take_pieces(cut, data, piece, length, 0);
    return begin_slices(cut.bounds.back() == 0);
  }

  /// Waits for the other nodes and gives what is common to the whole node.
  void finish(Request* request, const NodeCut& cut, std::byte* data, std::size_t piece,
              std::size_t length) {
    if (request != nullptr) request->wait();
    take_pieces(cut, data, piece, length, cut.common_from);
    const bool has_common = std::any_of(slices_.begin(), slices_.end(),
                                        [](const auto& slice) { return !slice.empty(); });
    if (comms_.local != nullptr && has_common) comms_.local->all_gather(slices_, local_context_);
  }

  /// Both steps with a cut over the nodes, at once: each part of this rank's slice ends at the node
  /// that owns it. `within` is the cut within nodes.
  void reduce_over_nodes(const NodeCut& cut, const NodeCut& within, std::byte* data) {
    take_pieces(within, data, 0, within.bounds.back(), 0);
    reduce_in_node();
    if (comms_.cross == nullptr || me_ >= owners_) return;
    const auto nodes = static_cast<std::size_t>(comms_.cross->size());
    inputs_.clear();
    for (std::size_t node = 0; node < nodes; ++node) {
      inputs_.push_back(part_of(cut, data, me_ * nodes + node, 0));
    }
    std::byte* const own =
        data +
        cut.bounds[me_ * nodes + static_cast<std::size_t>(comms_.cross->rank())] * element_bytes_;
    comms_.cross->reduce_scatter(inputs_, own, cross_reduction_, context_);
  }

  /// Gives every node all of this rank's slice, as far as it is common.
  void gather_over_nodes(const NodeCut& cut, std::byte* data) {
    if (comms_.cross == nullptr || me_ >= owners_) return;
    const auto nodes = static_cast<std::size_t>(comms_.cross->size());
    std::vector<std::span<std::byte>> parts;
    for (std::size_t node = 0; node < nodes; ++node) {
      parts.push_back(part_of(cut, data, me_ * nodes + node, cut.common_from));
    }
    comms_.cross->all_gather(parts, context_);
  }

  [[nodiscard]] std::size_t unit() const noexcept { return unit_; }

 private:
  std::span<std::byte> part_of(const NodeCut& cut, std::byte* data, std::size_t slice,
                               std::size_t from) const {
    const std::size_t begin = std::max(cut.bounds[slice], from);
    const std::size_t end = std::max(cut.bounds[slice + 1], begin);
    return {data + begin * element_bytes_, (end - begin) * element_bytes_};
  }

  void reduce_in_node() {
    const std::span<std::byte> own = slices_[me_];
    if (comms_.local != nullptr) {
      inputs_.assign(slices_.begin(), slices_.end());
      comms_.local->reduce_scatter(inputs_, own.data(), local_reduction_, local_context_);
    } else if (local_reduction_.scale != 1.0) {
      scale_in_place(own.data(), own.size() / element_bytes_, local_reduction_.dtype,
                     local_reduction_.scale);
    }
  }

  std::unique_ptr<Request> begin_slices(bool is_empty_tensor) {
    reduce_in_node();
    const std::span<std::byte> own = slices_[me_];
    const std::size_t mine = own.size() / element_bytes_;
    // An empty tensor crosses too, as a bare header: ranks which disagree still find out.
    if (comms_.cross == nullptr || me_ >= owners_ || (mine == 0 && !is_empty_tensor)) {
      return nullptr;
    }
    const auto before = static_cast<std::size_t>(own.data() - data_) / element_bytes_;
    return comms_.cross->start_all_reduce(own.data(), mine, cross_reduction_.from(before),
                                          context_);
  }

  void split(std::byte* chunk, std::size_t count) {
    split_among(count, owners_, unit_, bounds_);
    for (std::size_t r = 0; r < slices_.size(); ++r) {
      slices_[r] = {chunk + bounds_[r] * element_bytes_,
                    (bounds_[r + 1] - bounds_[r]) * element_bytes_};
    }
  }

  /// Of every slice the elements from `piece` * `length` on, as far as they lie behind `from`.
  void take_pieces(const NodeCut& cut, std::byte* data, std::size_t piece, std::size_t length,
                   std::size_t from) {
    for (std::size_t r = 0; r < slices_.size(); ++r) {
      const std::size_t slice_begin = cut.bounds[std::min(r, owners_)];
      const std::size_t slice_end = cut.bounds[std::min(r + 1, owners_)];
      const std::size_t begin = std::min(slice_begin + piece * length, slice_end);
      const std::size_t end = std::min(begin + length, slice_end);
      const std::size_t first = std::clamp(from, begin, end);
      slices_[r] = {data + first * element_bytes_, (end - first) * element_bytes_};
    }
  }

  const Comms& comms_;
  std::byte* data_;  ///< where the tensor begins
  std::size_t owners_;
  std::size_t unit_;
  std::size_t element_bytes_;
  std::size_t me_ = 0;
  Reduction local_reduction_;
  Reduction cross_reduction_;
  const OpContext& context_;
  OpContext local_context_;
  std::vector<std::size_t> bounds_;
  std::vector<std::span<std::byte>> slices_;
  std::vector<std::span<const std::byte>> inputs_;
};

/// Elements of one chunk: at most `chunk_bytes`, smaller when that gives a middle-sized message
/// something to overlap.
std::size_t pipeline_chunk(std::size_t count, DataType dtype, std::size_t chunk_bytes) noexcept {
  const std::size_t element = size_of(dtype);
  const std::size_t most = std::max(chunk_bytes / element, kAlignElements);
  const std::size_t least = std::min(most, kSmallestChunkBytes / element);
  const std::size_t wanted = count / (kPipelineDepth + 1);
  return internal::round_up(std::clamp(wanted, least, most), kAlignElements);
}

/// Calls begin(k) and, so many later that kPipelineDepth are between the nodes, finish(request, k)
/// for all chunks.
template <typename Begin, typename Finish>
void run_chunks(std::size_t chunks, const Begin& begin, const Finish& finish) {
  std::array<std::unique_ptr<Request>, kPipelineDepth> between_nodes;
  for (std::size_t k = 0; k < chunks + kPipelineDepth; ++k) {
    if (k >= kPipelineDepth && k - kPipelineDepth < chunks) {
      const std::size_t done = k - kPipelineDepth;
      const auto request = std::move(between_nodes[done % kPipelineDepth]);
      finish(request.get(), done);
    }
    if (k < chunks) between_nodes[k % kPipelineDepth] = begin(k);
  }
}

/// On at least two nodes.
void all_reduce_pipelined(const Comms& comms, std::byte* data, std::size_t count,
                          const Reduction& reduction, const OpContext& context,
                          std::size_t chunk_bytes, std::size_t owners, const ShardPlan* shards) {
  const std::size_t chunk = internal::round_up(pipeline_chunk(count, reduction.dtype, chunk_bytes),
                                               unit_of(reduction, shards));
  const std::size_t chunks = std::max<std::size_t>(1, (count + chunk - 1) / chunk);
  const std::size_t element = size_of(reduction.dtype);
  Pipeline pipeline(comms, data, reduction, context, owners, shards);
  const auto length = [&](std::size_t k) { return std::min(chunk, count - k * chunk); };
  run_chunks(
      chunks, [&](std::size_t k) { return pipeline.begin(data + k * chunk * element, length(k)); },
      [&](Request* request, std::size_t k) {
        pipeline.finish(request, data + k * chunk * element, length(k));
      });
}

/// Inside one node: the whole slices at once, of which the Comm makes chunks itself.
std::size_t piece_length(const Comms& comms, const NodeCut& cut, const Reduction& reduction,
                         std::size_t chunk_bytes, std::size_t unit) {
  const std::size_t count = cut.bounds.back();
  if (comms.topology->node_count() == 1) return std::max<std::size_t>(count, 1);
  const std::size_t chunk = pipeline_chunk(count, reduction.dtype, chunk_bytes);
  return internal::round_up((chunk + cut.owners() - 1) / cut.owners(), unit);
}

}  // namespace

void all_reduce(Algorithm algorithm, const Comms& comms, std::byte* data, std::size_t count,
                const Reduction& reduction, const OpContext& context, std::size_t chunk_bytes,
                const ShardPlan* shards) {
  Reduction over_all = reduction;
  if (shards != nullptr) over_all.tree = &shards->flat().sum;
  if (comms.topology->node_count() == 1) {
    if (comms.local == nullptr) return;  // a group of one
    over_all.wire = WireFormat::kNative;
    comms.local->all_reduce(data, count, over_all, context);
  } else if (algorithm == Algorithm::kHierarchical || algorithm == Algorithm::kTwoDimensional) {
    const int smallest = comms.topology->min_local_size();
    const std::size_t owners =
        algorithm == Algorithm::kHierarchical ? 1 : static_cast<std::size_t>(smallest);
    all_reduce_pipelined(comms, data, count, reduction, context, chunk_bytes, owners, shards);
  } else {
    comms.flat->all_reduce(data, count, over_all, context);
  }
}

void reduce_to_owners(const Comms& comms, const NodeCut& cut, std::byte* data,
                      const Reduction& reduction, const OpContext& context,
                      std::size_t chunk_bytes) {
  if (comms.topology->size() == 1) return;
  if (cut.is_over_nodes && comms.topology->node_count() > 1) {
    const NodeCut within = cut.within_nodes(*comms.topology);
    Pipeline pipeline(comms, data, reduction, context, within.owners(), nullptr);
    pipeline.reduce_over_nodes(cut, within, data);
    if (cut.common_from < cut.bounds.back())
      gather_from_owners(comms, cut, data, reduction.dtype, context);
    return;
  }
  Pipeline pipeline(comms, data, reduction, context, cut.owners(), nullptr);
  const std::size_t length = piece_length(comms, cut, reduction, chunk_bytes, pipeline.unit());
  std::size_t longest = 0;
  for (std::size_t r = 0; r < cut.owners(); ++r) {
    longest = std::max(longest, cut.bounds[r + 1] - cut.bounds[r]);
  }
  run_chunks(
      std::max<std::size_t>(1, (longest + length - 1) / length),
      [&](std::size_t k) { return pipeline.begin(cut, data, k, length); },
      [&](Request* request, std::size_t k) { pipeline.finish(request, cut, data, k, length); });
}

void gather_from_owners(const Comms& comms, const NodeCut& cut, std::byte* data, DataType dtype,
                        const OpContext& context) {
  const NodeCut within = cut.within_nodes(*comms.topology);
  if (cut.is_over_nodes && comms.topology->node_count() > 1) {
    Reduction elements;
    elements.dtype = dtype;
    Pipeline(comms, data, elements, context, within.owners(), nullptr).gather_over_nodes(cut, data);
  }
  if (comms.local == nullptr) return;
  const std::size_t element_bytes = size_of(dtype);
  std::vector<std::span<std::byte>> parts;
  for (std::size_t r = 0; r < static_cast<std::size_t>(comms.local->size()); ++r) {
    const std::size_t begin =
        std::max(cut.common_from, within.bounds[std::min(r, within.owners())]);
    const std::size_t end = std::max(begin, within.bounds[std::min(r + 1, within.owners())]);
    parts.emplace_back(data + begin * element_bytes, (end - begin) * element_bytes);
  }
  comms.local->all_gather(parts, context);
}

}  // namespace chainmail::ops
