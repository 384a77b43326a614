// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/plan/plan.h"

#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "ops/algorithms/select.h"
#include "ops/kernels/block_wire.h"

namespace chainmail::ops {
namespace {

bool has_root(OpKind kind) {
  return kind == OpKind::kReduce || kind == OpKind::kBroadcast || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

/// True when `count` is one rank's part and some rank holds size * count elements.
bool is_split_by_rank(const Collective& collective) {
  const OpKind kind = collective.kind;
  return kind == OpKind::kReduceScatter || kind == OpKind::kGather || kind == OpKind::kScatter ||
         (kind == OpKind::kAllGather && collective.cut == nullptr);
}

[[noreturn]] void refuse(const Collective& collective, const std::string& what) {
  throw InvalidArgument(std::string(to_string(collective.kind)) + ": " + what);
}

/// Elements of a rank's part, equal parts when no counts were given.
std::size_t part_count(const Collective& collective, const std::vector<std::size_t>& counts,
                       int rank) {
  return counts.empty() ? collective.count : counts[static_cast<std::size_t>(rank)];
}

/// Consecutive parts of `whole`, or what `apart` points to.
template <typename Byte>
std::vector<std::span<Byte>> parts_by_rank(const Collective& collective, Byte* whole,
                                           const std::vector<Byte*>& apart,
                                           const std::vector<std::size_t>& counts, int size) {
  std::vector<std::span<Byte>> parts;
  for (int rank = 0; rank < size; ++rank) {
    const std::size_t bytes = part_count(collective, counts, rank) * size_of(collective.dtype);
    parts.emplace_back(apart.empty() ? whole : apart[static_cast<std::size_t>(rank)], bytes);
    if (whole != nullptr) whole += bytes;
  }
  return parts;
}

std::size_t total(const Collective& collective, const std::vector<std::size_t>& counts, int size) {
  std::size_t sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += part_count(collective, counts, rank);
  return sum;
}

/// Which buffers a rank must hand over.
struct Needs {
  bool input = false;
  bool output = false;
};

Needs needs_of(const Collective& collective, int rank, int size) {
  const bool has_elements = collective.count > 0;
  const bool is_root = has_elements && rank == collective.root;
  if (collective.cut != nullptr) return {false, has_elements};
  switch (collective.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kBroadcast:
    case OpKind::kRecv:
      return {false, has_elements};
    case OpKind::kReduceScatter:
      return {has_elements, has_elements};
    case OpKind::kGather:
      return {has_elements, is_root};
    case OpKind::kScatter:
      return {is_root, has_elements};
    case OpKind::kSend:
      return {has_elements, false};
    case OpKind::kAllGather:
      return {part_count(collective, collective.receive_counts, rank) > 0,
              total(collective, collective.receive_counts, size) > 0};
    case OpKind::kAllToAll:
      return {total(collective, collective.send_counts, size) > 0,
              total(collective, collective.receive_counts, size) > 0};
    case OpKind::kBarrier:
    case OpKind::kAllocate:
      return {};
  }
  return {};
}

void check_counts(const Collective& collective, int size) {
  const std::size_t ranks = static_cast<std::size_t>(size);
  for (const auto* counts : {&collective.send_counts, &collective.receive_counts}) {
    if (!counts->empty() && counts->size() != ranks) {
      refuse(collective, "counts for " + std::to_string(counts->size()) + " ranks in a group of " +
                             std::to_string(size) + "; give one per rank, or none for equal parts");
    }
  }
  const std::size_t most = std::numeric_limits<std::size_t>::max() / 2;
  const std::size_t factor = is_split_by_rank(collective) ? ranks : 1;
  if (collective.count > most / size_of(collective.dtype) / factor) {
    refuse(collective, std::to_string(collective.count) + " elements of " +
                           to_string(collective.dtype) + " are more than memory can hold");
  }
}

template <typename Byte>
void check_parts(const Collective& collective, const std::vector<Byte*>& parts, int size) {
  if (!parts.empty() && parts.size() != static_cast<std::size_t>(size)) {
    refuse(collective, "parts for " + std::to_string(parts.size()) + " ranks in a group of " +
                           std::to_string(size) + "; give one per rank");
  }
}

void check_reduction(const Collective& collective) {
  if (!reduces(collective.kind)) return;
  if (is_bitwise(collective.reduce_op) && is_floating_point(collective.dtype)) {
    refuse(collective, std::string(to_string(collective.reduce_op)) + " of " +
                           to_string(collective.dtype) +
                           " has no meaning; bitwise reductions take integers and bool");
  }
  if (collective.reduce_op == ReduceOp::kAvg && collective.dtype == DataType::kBool) {
    refuse(collective, "avg of bool has no meaning; use sum, min or max");
  }
}

void check_shards(const Collective& collective, int rank, int size) {
  if (collective.shards == nullptr) return;
  if (collective.kind != OpKind::kAllReduce || collective.reduce_op != ReduceOp::kSum ||
      !is_floating_point(collective.dtype)) {
    refuse(collective, std::string("shards are added by an all_reduce sum of a floating-point "
                                   "type, not by ") +
                           to_string(collective.reduce_op) + " of " + to_string(collective.dtype));
  }
  collective.shards->check(size);
  const std::size_t pieces = collective.shards->pieces_of(rank).size();
  if (collective.pieces.size() == pieces) return;
  refuse(collective, std::to_string(collective.pieces.size()) + " pieces of shards; rank " +
                         std::to_string(rank) + " has " + std::to_string(pieces));
}

void check_cut(const Collective& collective, const Topology& topology) {
  if (collective.cut == nullptr) return;
  const bool is_sum =
      collective.kind == OpKind::kAllReduce && is_floating_point(collective.dtype) &&
      (collective.reduce_op == ReduceOp::kSum || collective.reduce_op == ReduceOp::kAvg);
  if ((!is_sum && collective.kind != OpKind::kAllGather) || collective.shards != nullptr) {
    refuse(collective, std::string("slices of the ranks of a node are for an all_gather, and for "
                                   "an all_reduce sum or mean of a floating-point type; this is ") +
                           to_string(collective.reduce_op) + " of " + to_string(collective.dtype));
  }
  collective.cut->check(collective.count, topology);
}

WireFormat wire_between_nodes(const Collective& collective, const GroupOptions& options) {
  const ReduceOp op = collective.shards != nullptr ? ReduceOp::kAvg : collective.reduce_op;
  return reduces(collective.kind) ? wire_of(collective.wire, options.wire, collective.dtype, op)
                                  : WireFormat::kNative;
}

/// Also where nothing travels between nodes: what is wrong on many is wrong on one.
void check_wire(const Collective& collective, const GroupOptions& options) {
  const WireFormat wire = wire_between_nodes(collective, options);
  const std::string asked = std::string("the wire ") + to_string(collective.wire.value_or(wire));
  if (collective.wire && is_in_blocks(*collective.wire) && wire != *collective.wire) {
    refuse(collective,
           asked + " is for sums and means of float32, not for " +
               (reduces(collective.kind) ? std::string(to_string(collective.reduce_op)) + " of " +
                                               to_string(collective.dtype)
                                         : "what only moves data"));
  }
  if (is_in_blocks(wire) && collective.shards != nullptr) {
    refuse(collective, asked +
                           " depends on who sums what; shards are to have the same bits "
                           "whoever does. Use native, float16 or bfloat16");
  }
  const bool is_over_nodes = collective.cut != nullptr && collective.cut->is_over_nodes;
  if (is_in_blocks(wire) && is_over_nodes) {
    refuse(collective, asked +
                           " is not for slices over all nodes: what it rounds away of a slice "
                           "would have to be kept by nodes that do not own it. Use slices "
                           "within nodes, or native, float16 or bfloat16");
  }
  if (collective.compressed_count &&
      (collective.kind != OpKind::kAllReduce || collective.shards != nullptr || is_over_nodes ||
       *collective.compressed_count > collective.count)) {
    refuse(collective, "the first " + std::to_string(*collective.compressed_count) + " of " +
                           std::to_string(collective.count) +
                           " elements cannot be rounded alone: that is for an all_reduce of as "
                           "many or more, without shards or slices over all nodes");
  }
  if (!collective.feedback) return;
  if (collective.kind != OpKind::kAllReduce || !is_in_blocks(wire)) {
    refuse(collective,
           "feedback is for an all_reduce on the wires int8 and int4; the wire here is " +
               std::string(to_string(wire)));
  }
  if (collective.count != 0 &&
      (collective.feedback->contributions == nullptr || collective.feedback->results == nullptr)) {
    refuse(collective,
           "feedback needs memory for what is lost: two arrays of as many float32 as there are "
           "elements");
  }
}

std::uint32_t layout_of(const Collective& collective, const Plan& plan) {
  internal::NumberHash hash;
  hash.add(collective.shape_hash);
  if (has_root(collective.kind)) hash.add(static_cast<std::uint64_t>(collective.root));
  if (is_point_to_point(collective.kind)) hash.add(collective.tag);
  if (collective.kind == OpKind::kAllGather) {
    for (const std::size_t count : collective.receive_counts) hash.add(count);
  }
  if (collective.kind == OpKind::kAllReduce || collective.kind == OpKind::kReduce) {
    hash.add(static_cast<std::uint64_t>(plan.algorithm));
  }
  if (reduces(collective.kind)) hash.add(static_cast<std::uint64_t>(plan.wire));
  if (is_in_blocks(plan.wire)) {
    hash.add(block_format(plan.wire).block);
    hash.add(collective.feedback ? collective.feedback->exchanges + 1 : 0);
  }
  if (plan.wire != WireFormat::kNative && collective.compressed_count) {
    hash.add(*collective.compressed_count);
  }
  if (collective.shards != nullptr) {
    hash.add(collective.shards->tree.shards());
    for (const std::uint32_t bound : collective.shards->bounds) hash.add(bound);
  }
  if (collective.kind == OpKind::kAllocate) hash.add(collective.is_common ? 1 : 0);
  if (collective.cut != nullptr) {
    hash.add(collective.cut->common_from);
    hash.add(collective.cut->is_over_nodes ? 1 : 0);
    for (const std::size_t bound : collective.cut->bounds) hash.add(bound);
  }
  return hash.value();
}

MessageHeader header_of(const Collective& collective, const Plan& plan,
                        const GroupOptions& options) {
  MessageHeader header;
  // Both ends of a transfer must carry the same header.
  header.kind = collective.kind == OpKind::kRecv ? OpKind::kSend : collective.kind;
  header.generation = options.generation;
  const bool has_dtype = collective.kind != OpKind::kBarrier && !is_point_to_point(collective.kind);
  header.dtype = has_dtype ? collective.dtype : DataType::kUInt8;
  header.reduce_op = reduces(collective.kind) ? collective.reduce_op : ReduceOp::kSum;
  // Parts of an all_to_all may differ from rank to rank.
  const bool has_count =
      collective.kind != OpKind::kAllToAll && collective.kind != OpKind::kBarrier;
  header.count = has_count ? collective.count : 0;
  // Both ends of a transfer agree about bytes: a float may be received as four of them.
  if (is_point_to_point(collective.kind)) header.count *= size_of(collective.dtype);
  header.layout = layout_of(collective, plan);
  return header;
}

}  // namespace

bool reduces(OpKind kind) noexcept {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter;
}

std::vector<std::span<const std::byte>> input_parts(const Collective& collective, int size) {
  return parts_by_rank(collective, collective.input, collective.input_parts, collective.send_counts,
                       size);
}

std::vector<std::span<std::byte>> output_parts(const Collective& collective, int size) {
  return parts_by_rank(collective, collective.output, collective.output_parts,
                       collective.receive_counts, size);
}

void check_collective(const Collective& collective, int rank, const Topology& topology,
                      const GroupOptions& options) {
  const int size = topology.size();
  check_counts(collective, size);
  check_reduction(collective);
  check_shards(collective, rank, size);
  check_cut(collective, topology);
  check_wire(collective, options);
  const bool is_transfer = is_point_to_point(collective.kind);
  if (is_from_any_rank(collective)) {
    if (size == 1) refuse(collective, "there is no other rank in the group that could send");
  } else if ((has_root(collective.kind) || is_transfer) &&
             (collective.root < 0 || collective.root >= size)) {
    refuse(collective, std::string(is_transfer ? "peer " : "root ") +
                           std::to_string(collective.root) + " is not a rank of a group of " +
                           std::to_string(size));
  }
  if (is_transfer && collective.root == rank) {
    refuse(collective, "rank " + std::to_string(rank) + " is this rank itself; copy instead");
  }
  check_parts(collective, collective.input_parts, size);
  check_parts(collective, collective.output_parts, size);
  const Needs needs = needs_of(collective, rank, size);
  if (needs.input && collective.input == nullptr && collective.input_parts.empty()) {
    refuse(collective, "the input is null");
  }
  if (needs.output && collective.output == nullptr && collective.output_parts.empty()) {
    refuse(collective, "the output is null");
  }
  if (collective.timeout.value_or(options.timeout).count() <= 0) {
    refuse(collective, "a time limit must be positive");
  }
  if (collective.algorithm == Algorithm::kSingleNode && topology.node_count() > 1) {
    refuse(collective, "algorithm single_node over " + topology.describe() +
                           "; use hierarchical, two_dimensional, flat or auto");
  }
}

bool leaves_choice(const Collective& collective, const GroupOptions& options) noexcept {
  return collective.algorithm.value_or(options.algorithm) == Algorithm::kAuto &&
         collective.cut == nullptr &&
         (collective.kind == OpKind::kAllReduce || collective.kind == OpKind::kReduce);
}

Plan plan_collective(const Collective& collective, int rank, const Topology& topology,
                     const GroupOptions& options) {
  Plan plan;
  const std::size_t ranks = static_cast<std::size_t>(topology.size());
  const std::size_t factor = is_split_by_rank(collective) ? ranks : 1;
  std::size_t elements = collective.count * factor;
  if (collective.kind == OpKind::kAllToAll) {
    elements = total(collective, collective.send_counts, topology.size());
  } else if (collective.kind == OpKind::kAllGather && collective.cut == nullptr) {
    elements = total(collective, collective.receive_counts, topology.size());
  }
  plan.bytes = elements * size_of(collective.dtype);
  plan.algorithm = collective.algorithm.value_or(options.algorithm);
  if (collective.cut != nullptr) {
    plan.algorithm = Algorithm::kTwoDimensional;
  } else if (leaves_choice(collective, options)) {
    plan.algorithm = select_all_reduce(plan.bytes, topology, options.tuning).algorithm;
  } else if (plan.algorithm == Algorithm::kAuto) {
    plan.algorithm = Algorithm::kFlat;  // not by the table, which may be measured this moment
  } else if (plan.algorithm == Algorithm::kNaive) {
    plan.algorithm = Algorithm::kFlat;
  }
  if (collective.shards != nullptr || topology.node_count() > 1) {
    plan.wire = wire_between_nodes(collective, options);
  }
  plan.header = header_of(collective, plan, options);
  if (is_point_to_point(collective.kind)) {
    const std::string peer = is_from_any_rank(collective) ? "any" : std::to_string(collective.root);
    const std::string self = std::to_string(rank);
    const bool is_send = collective.kind == OpKind::kSend;
    plan.channel = is_send ? self + '>' + peer : peer + '>' + self;
    plan.channel += '/' + std::to_string(collective.tag);
  }
  return plan;
}

std::string describe_data(const Collective& collective) {
  std::string text = to_string(collective.kind);
  if (collective.kind == OpKind::kBarrier) return text;
  if (reduces(collective.kind)) text += std::string(" ") + to_string(collective.reduce_op);
  text += std::string(" of ") + to_string(collective.dtype) + " ";
  if (collective.shards != nullptr) {
    text += "over " + std::to_string(collective.shards->tree.shards()) + " shards cut at";
    for (const std::uint32_t bound : collective.shards->bounds) text += " " + std::to_string(bound);
    text += " ";
  }
  if (collective.cut != nullptr) {
    text += collective.cut->is_over_nodes ? "in slices over all nodes cut at" : "in slices cut at";
    for (const std::size_t bound : collective.cut->bounds) text += " " + std::to_string(bound);
    text += " ";
  }
  return text + (collective.describe_shapes ? collective.describe_shapes()
                                            : "[" + std::to_string(collective.count) + "]");
}

std::string describe_call(const Collective& collective, const Plan& plan,
                          const GroupOptions& options, std::span<const int> global_ranks) {
  const auto global_root = [&] {
    return std::to_string(global_ranks[static_cast<std::size_t>(collective.root)]);
  };
  std::string text = describe_data(collective);
  if (collective.kind == OpKind::kBarrier) return text;
  if (has_root(collective.kind)) {
    text += " with root " + global_root();
  } else if (is_point_to_point(collective.kind)) {
    text += collective.kind == OpKind::kSend ? " to " : " from ";
    text += is_from_any_rank(collective) ? "any rank" : "rank " + global_root();
    text += " with tag " + std::to_string(collective.tag) + " (" +
            std::to_string(plan.header.count) + " bytes)";
  }
  // Said only when somebody asked for it: ranks may have been configured differently.
  const Algorithm asked = collective.algorithm.value_or(options.algorithm);
  if (asked != Algorithm::kAuto && reduces(collective.kind)) {
    text += std::string(" (") + to_string(asked) + ")";
  }
  if (plan.wire == WireFormat::kNative) return text;
  text += std::string(" (") + to_string(plan.wire) + " between nodes";
  if (collective.compressed_count) {
    text += ", the first " + std::to_string(*collective.compressed_count) + " elements";
  }
  if (is_in_blocks(plan.wire)) {
    text += " in blocks of " + std::to_string(block_format(plan.wire).block);
    text += collective.feedback ? ", with feedback of " +
                                      std::to_string(collective.feedback->exchanges) + " exchanges"
                                : ", without feedback";
  }
  return text + ")";
}

void check_unprotected_transport(const GroupOptions& options, const Topology& topology,
                                 const std::string& carrier, const std::string& instead) {
  if (options.encryption == Encryption::kOff || topology.node_count() <= 1) return;
  throw InvalidArgument("group " + options.name + " is to " + to_string(options.encryption) +
                        " data between nodes, and " + carrier + " would carry them over " +
                        topology.describe() + " without; " + instead +
                        ", or set CHAINMAIL_ENCRYPT=off where the network can be trusted");
}

}  // namespace chainmail::ops
