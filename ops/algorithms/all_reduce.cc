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

/// On a 16-bit wire, and where sums may be rounded as on one, slices and chunks are whole blocks,
/// which are the same then however many owners there are.
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

/// How much of `reduction.scale` the local step applies. float16 and bfloat16 sums are stored
/// between the steps, so a mean is scaled by 1/(ranks of the largest node) before it is stored:
/// the stored value is no larger than the largest contribution, and no smaller than needed.
double local_scale(const Reduction& reduction, const Topology& topology) {
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
  Pipeline(const Comms& comms, const Reduction& reduction, const OpContext& context, int owners,
           const ShardPlan* shards)
      : comms_(comms),
        owners_(static_cast<std::size_t>(owners)),
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
    std::byte* own = slices_[me_].data();
    if (comms_.local != nullptr) {
      inputs_.assign(slices_.begin(), slices_.end());
      comms_.local->reduce_scatter(inputs_, own, local_reduction_, local_context_);
    } else if (local_reduction_.scale != 1.0) {
      scale_in_place(chunk, count, local_reduction_.dtype, local_reduction_.scale);
    }
    const std::size_t mine = bounds_[me_ + 1] - bounds_[me_];
    // An empty tensor crosses too, as a bare header: ranks which disagree still find out.
    if (comms_.cross == nullptr || me_ >= owners_ || (mine == 0 && count != 0)) return nullptr;
    return comms_.cross->start_all_reduce(own, mine, cross_reduction_, context_);
  }

  /// Waits for the other nodes and gives the result to the whole node.
  void finish(Request* request, std::byte* chunk, std::size_t count) {
    if (request != nullptr) request->wait();
    if (comms_.local == nullptr) return;
    split(chunk, count);
    comms_.local->all_gather(slices_, local_context_);
  }

 private:
  void split(std::byte* chunk, std::size_t count) {
    split_among(count, owners_, unit_, bounds_);
    for (std::size_t r = 0; r < slices_.size(); ++r) {
      slices_[r] = {chunk + bounds_[r] * element_bytes_,
                    (bounds_[r + 1] - bounds_[r]) * element_bytes_};
    }
  }

  const Comms& comms_;
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

/// On at least two nodes.
void all_reduce_pipelined(const Comms& comms, std::byte* data, std::size_t count,
                          const Reduction& reduction, const OpContext& context,
                          std::size_t chunk_bytes, int owners, const ShardPlan* shards) {
  const std::size_t chunk = internal::round_up(pipeline_chunk(count, reduction.dtype, chunk_bytes),
                                               unit_of(reduction, shards));
  const std::size_t chunks = std::max<std::size_t>(1, (count + chunk - 1) / chunk);
  const std::size_t element = size_of(reduction.dtype);
  Pipeline pipeline(comms, reduction, context, owners, shards);
  std::array<std::unique_ptr<Request>, kPipelineDepth> between_nodes;

  const auto length = [&](std::size_t k) { return std::min(chunk, count - k * chunk); };
  for (std::size_t k = 0; k < chunks + kPipelineDepth; ++k) {
    if (k >= kPipelineDepth) {
      const std::size_t done = k - kPipelineDepth;
      if (done < chunks) {
        auto request = std::move(between_nodes[done % kPipelineDepth]);
        pipeline.finish(request.get(), data + done * chunk * element, length(done));
      }
    }
    if (k < chunks) {
      between_nodes[k % kPipelineDepth] = pipeline.begin(data + k * chunk * element, length(k));
    }
  }
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
    const int owners = algorithm == Algorithm::kHierarchical ? 1 : comms.topology->min_local_size();
    all_reduce_pipelined(comms, data, count, reduction, context, chunk_bytes, owners, shards);
  } else {
    comms.flat->all_reduce(data, count, over_all, context);
  }
}

}  // namespace chainmail::ops
