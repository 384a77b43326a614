// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/stream/stream_pipeline.h"

#include <algorithm>

#include "base/bytes.h"
#include "ops/kernels/wire_block.h"

namespace chainmail::ops {
namespace {

// Below this a chunk's fixed costs, some launches, show.
constexpr std::size_t kSmallestChunkBytes = std::size_t{512} << 10;
// Chunks begin where threads of the kernels can move 16 bytes at once.
constexpr std::size_t kAlignElements = 8;

/// How a tensor is cut. All chunks but the last have `chunk` elements.
struct Cut {
  std::size_t owners = 1;
  std::size_t nodes = 1;
  std::size_t unit = 1;  ///< a slice is a multiple of this: every node gets a whole part of it
  std::size_t chunk = 0;
  std::size_t chunks = 0;

  Cut(std::size_t count, const Reduction& reduction, const Topology& topology,
      std::size_t chunk_bytes, int owner_count)
      : owners(static_cast<std::size_t>(owner_count)),
        nodes(static_cast<std::size_t>(topology.node_count())),
        unit((reduction.wire == WireFormat::kNative ? kAlignElements : kWireBlock) * nodes) {
    const std::size_t element = size_of(reduction.dtype);
    const std::size_t most = std::max<std::size_t>(1, chunk_bytes / element);
    const std::size_t least = std::min(most, kSmallestChunkBytes / element);
    chunk = internal::round_up(std::clamp(count / (kStreamPipelineDepth + 1), least, most),
                               owners * unit);
    chunks = (count + chunk - 1) / chunk;
  }

  /// Elements of an owner's slice of `count`, of which the last may have fewer.
  std::size_t slice(std::size_t count) const {
    return internal::round_up((count + owners - 1) / owners, unit);
  }
  std::size_t longest_slice(std::size_t count) const { return slice(std::min(count, chunk)); }
  /// Bytes of a slice on the 16-bit wire: a message for every node.
  std::size_t row_bytes(std::size_t slice) const { return nodes * wire_stride(slice / nodes); }
  /// Per chunk between the nodes: all owners' slices, and one that is received.
  std::size_t slot_bytes(std::size_t count) const {
    return (owners + 1) * row_bytes(longest_slice(count));
  }
};

struct Range {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// Part `index` of `total` elements in parts of `part`.
Range part_of(std::size_t total, std::size_t part, std::size_t index) {
  const std::size_t begin = std::min(total, index * part);
  return {begin, std::min(part, total - begin)};
}

/// One all-reduce on its way through the three steps.
class StreamPipeline {
 public:
  StreamPipeline(const StreamComms& comms, StreamWork& work, const Reduction& reduction,
                 const Cut& cut, std::size_t count)
      : comms_(comms),
        work_(work),
        kernels_(work.device.kernels()),
        reduction_(reduction),
        cut_(cut),
        element_(size_of(reduction.dtype)),
        nodes_(static_cast<std::size_t>(comms.topology->node_count())),
        node_(static_cast<std::size_t>(comms.topology->node_of(comms.rank))),
        me_(static_cast<std::size_t>(comms.topology->local_rank_of(comms.rank))),
        is_compressed_(reduction.wire != WireFormat::kNative && !work.crosses_on_host),
        slot_bytes_(cut.slot_bytes(count)) {
    if (is_compressed_) {
      scratch_ = work.scratch.get(slot_bytes_ * kStreamPipelineDepth, work.may_allocate);
    }
    if (work.host != nullptr) {
      pinned_ = work.host->memory->get(cut.chunk * element_ * kStreamPipelineDepth);
    }
  }

  /// Reduces chunk `k` inside the node and sends this rank's slice on its way.
  void begin(std::size_t k, std::byte* chunk, std::size_t count) {
    const std::size_t slice = cut_.slice(count);
    const bool scales = reduction_.scale != 1.0 && !is_compressed_;
    if (scales && is_narrow(reduction_.dtype)) {
      scale(chunk, count);  // before 16-bit sums are stored
    }
    reduce_in_node(chunk, count, slice);
    const Range mine = own(count, slice);
    if (mine.count == 0) return;
    std::byte* const data = chunk + mine.begin * element_;
    if (scales && !is_narrow(reduction_.dtype)) scale(data, mine.count);
    work_.check(work_.device.record(work_.local_done, work_.stream), "recording an event");
    if (work_.host != nullptr) {
      cross_on_host(k, data, mine.count);
    } else {
      await(work_.cross_stream, work_.local_done);
      if (is_compressed_) {
        cross_in_halves(k, data, mine.count, slice);
      } else {
        cross(data, mine.count);
      }
    }
    work_.check(work_.device.record(cross_event(k), work_.cross_stream), "recording an event");
  }

  /// Gives the result of chunk `k` to the whole node.
  void finish(std::size_t k, std::byte* chunk, std::size_t count) {
    const std::size_t slice = cut_.slice(count);
    if (own(count, slice).count != 0) await(work_.stream, cross_event(k));
    if (!is_compressed_) {
      return gather_in_node(chunk, count, slice, slice * element_, count * element_);
    }
    const std::size_t row = cut_.row_bytes(slice);
    gather_in_node(gathered(k), count, slice, row, cut_.owners * row);
    work_.check(kernels_.widen_parts(chunk, gathered(k), slice / nodes_, count, reduction_.wire,
                                     work_.flag, work_.stream),
                "widening from the wire format");
  }

 private:
  DeviceEvent cross_event(std::size_t k) const {
    return work_.cross_done[k % kStreamPipelineDepth];
  }
  std::byte* gathered(std::size_t k) const {
    return scratch_ + k % kStreamPipelineDepth * slot_bytes_;
  }
  Range own(std::size_t count, std::size_t slice) const {
    return me_ < cut_.owners ? part_of(count, slice, me_) : Range{};
  }
  void await(DeviceStream stream, DeviceEvent event) {
    work_.check(work_.device.wait(stream, event), "waiting for an event");
  }
  void scale(std::byte* data, std::size_t count) {
    work_.check(kernels_.convert(data, reduction_.dtype, data, reduction_.dtype, count,
                                 reduction_.scale, nullptr, work_.stream),
                "scaling");
  }
  /// Every local rank owns an equally long slice: NCCL has a call for that.
  bool is_even(std::size_t count, std::size_t slice) const {
    return cut_.owners == static_cast<std::size_t>(comms_.local->size()) &&
           slice * cut_.owners == count;
  }

  void reduce_in_node(std::byte* chunk, std::size_t count, std::size_t slice) {
    if (comms_.local == nullptr) return;
    NcclApi& api = comms_.local->api();
    if (cut_.owners > 1 && is_even(count, slice)) {
      comms_.local->call("reduce_scatter", work_.wait, [&](NcclHandle comm) {
        return api.reduce_scatter(chunk, chunk + me_ * slice * element_, slice, reduction_.dtype,
                                  ReduceOp::kSum, comm, work_.stream);
      });
      return;
    }
    const auto reduce = [&](NcclHandle comm, std::size_t owner) {
      const Range range = part_of(count, slice, owner);
      if (range.count == 0) return NcclCode::kSuccess;
      std::byte* const data = chunk + range.begin * element_;
      return api.reduce(data, data, range.count, reduction_.dtype, ReduceOp::kSum,
                        static_cast<int>(owner), comm, work_.stream);
    };
    comms_.local->call_together("reduce", work_.wait, cut_.owners, reduce);
  }

  /// Owner i has `slice_bytes` at i times as many, of `all_bytes`.
  void gather_in_node(std::byte* data, std::size_t count, std::size_t slice,
                      std::size_t slice_bytes, std::size_t all_bytes) {
    if (comms_.local == nullptr) return;
    NcclApi& api = comms_.local->api();
    if (cut_.owners > 1 && is_even(count, slice)) {
      comms_.local->call("all_gather", work_.wait, [&](NcclHandle comm) {
        return api.all_gather(data + me_ * slice_bytes, data, slice_bytes, comm, work_.stream);
      });
      return;
    }
    const auto broadcast = [&](NcclHandle comm, std::size_t owner) {
      if (part_of(count, slice, owner).count == 0) return NcclCode::kSuccess;
      const Range bytes = part_of(all_bytes, slice_bytes, owner);
      std::byte* const part = data + bytes.begin;
      return api.broadcast(part, part, bytes.count, static_cast<int>(owner), comm, work_.stream);
    };
    comms_.local->call_together("broadcast", work_.wait, cut_.owners, broadcast);
  }

  void cross(std::byte* data, std::size_t count) {
    NcclApi& api = comms_.cross->api();
    comms_.cross->call("all_reduce", work_.wait, [&](NcclHandle comm) {
      return api.all_reduce(data, data, count, reduction_.dtype, ReduceOp::kSum, comm,
                            work_.cross_stream);
    });
  }

  // Round, exchange, add, round, gather. What is past the end of the last slice is sent around
  // unused.
  void cross_in_halves(std::size_t k, std::byte* data, std::size_t count, std::size_t slice) {
    const std::size_t part = slice / nodes_;
    const std::size_t row = cut_.row_bytes(slice);
    std::byte* const packed = gathered(k) + me_ * row;
    std::byte* const received = gathered(k) + cut_.owners * row;
    work_.check(kernels_.round_parts(packed, part, data, count, reduction_.scale, reduction_.wire,
                                     work_.cross_stream),
                "rounding to the wire format");
    const Range mine = part_of(count, part, node_);
    exchange(packed, received, count, part, mine);
    const std::size_t stride = wire_stride(part);
    std::byte* const result = packed + node_ * stride;
    if (mine.count != 0) {
      const bool is_mean = reduction_.scale * static_cast<double>(nodes_) <= 1.0;
      work_.check(kernels_.add_parts(result, received, part, static_cast<int>(nodes_),
                                     static_cast<int>(node_), result, mine.count, reduction_.wire,
                                     is_mean, work_.cross_stream),
                  "adding what was received");
    }
    NcclApi& api = comms_.cross->api();
    comms_.cross->call("all_gather", work_.wait, [&](NcclHandle comm) {
      return api.all_gather(result, packed, stride, comm, work_.cross_stream);
    });
  }

  void exchange(std::byte* packed, std::byte* received, std::size_t count, std::size_t part,
                Range mine) {
    NcclApi& api = comms_.cross->api();
    const std::size_t stride = wire_stride(part);
    const auto swap_with = [&](NcclHandle comm, std::size_t node) {
      NcclCode code = NcclCode::kSuccess;
      if (node == node_) return code;
      const int peer = static_cast<int>(node);
      if (part_of(count, part, node).count != 0) {
        code = api.send(packed + node * stride, stride, peer, comm, work_.cross_stream);
      }
      if (is_bad(code) || mine.count == 0) return code;
      return api.receive(received + node * stride, stride, peer, comm, work_.cross_stream);
    };
    comms_.cross->call_together("exchange", work_.wait, nodes_, swap_with);
  }

  // The way back begins when the host has released it; copies of later chunks to the host do not
  // wait for that, since they are on another stream.
  void cross_on_host(std::size_t k, std::byte* data, std::size_t count) {
    HostCrossing& host = *work_.host;
    std::byte* const pinned = pinned_ + k % kStreamPipelineDepth * cut_.chunk * element_;
    const std::size_t bytes = count * element_;
    await(host.out_stream, work_.local_done);
    work_.check(work_.device.copy(pinned, data, bytes, host.out_stream), "copying to the host");
    const DeviceEvent ready = work_.events->take();
    work_.check(work_.device.record(ready, host.out_stream), "recording an event");
    Reduction sum = reduction_;
    sum.scale = 1.0;
    const std::uint32_t ticket = host.start(ready, pinned, count, sum);
    work_.check(work_.device.hold(work_.cross_stream, host.flag, ticket), "waiting for the host");
    work_.check(work_.device.copy(data, pinned, bytes, work_.cross_stream),
                "copying to the device");
  }

  const StreamComms& comms_;
  StreamWork& work_;
  DeviceKernels& kernels_;
  const Reduction& reduction_;
  const Cut& cut_;
  const std::size_t element_;
  const std::size_t nodes_;
  const std::size_t node_;
  const std::size_t me_;
  const bool is_compressed_;
  const std::size_t slot_bytes_;
  std::byte* scratch_ = nullptr;
  std::byte* pinned_ = nullptr;
};

}  // namespace

std::size_t pipelined_scratch_bytes(std::size_t count, const Reduction& reduction,
                                    const Topology& topology, std::size_t chunk_bytes,
                                    int owners) noexcept {
  if (reduction.wire == WireFormat::kNative) return 0;
  return Cut(count, reduction, topology, chunk_bytes, owners).slot_bytes(count) *
         kStreamPipelineDepth;
}

void queue_pipelined_all_reduce(const StreamComms& comms, StreamWork& work, std::byte* data,
                                std::size_t count, const Reduction& reduction,
                                std::size_t chunk_bytes, int owners) {
  const Cut cut(count, reduction, *comms.topology, chunk_bytes, owners);
  const std::size_t element = size_of(reduction.dtype);
  StreamPipeline pipeline(comms, work, reduction, cut, count);
  const auto length = [&](std::size_t k) { return std::min(cut.chunk, count - k * cut.chunk); };
  for (std::size_t k = 0; k < cut.chunks + kStreamPipelineDepth; ++k) {
    if (k >= kStreamPipelineDepth && k - kStreamPipelineDepth < cut.chunks) {
      const std::size_t done = k - kStreamPipelineDepth;
      pipeline.finish(done, data + done * cut.chunk * element, length(done));
    }
    if (k < cut.chunks) pipeline.begin(k, data + k * cut.chunk * element, length(k));
  }
}

}  // namespace chainmail::ops
