// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/engine/device/device_dispatch.h"

#include "base/error.h"
#include "ops/algorithms/stream/nccl_reduction.h"
#include "ops/algorithms/stream/stream_flat.h"
#include "ops/algorithms/stream/stream_pipeline.h"
#include "ops/engine/plan/plan.h"

namespace chainmail::ops {
namespace {

/// The calls of one collective other than all_reduce.
class Calls {
 public:
  Calls(const Collective& collective, const StreamComms& comms, StreamWork& work)
      : collective_(collective),
        work_(work),
        flat_(comms.flat),
        me_(static_cast<std::size_t>(comms.rank)),
        ranks_(static_cast<std::size_t>(comms.topology->size())),
        element_(size_of(collective.dtype)) {}

  void queue() {
    switch (collective_.kind) {
      case OpKind::kReduce:
        return reduce();
      case OpKind::kReduceScatter:
        return reduce_scatter();
      case OpKind::kAllGather:
        return all_gather();
      case OpKind::kBroadcast:
        return broadcast();
      case OpKind::kGather:
        return gather();
      case OpKind::kScatter:
        return scatter();
      case OpKind::kAllToAll:
        return all_to_all();
      case OpKind::kBarrier:
        return barrier();
      case OpKind::kAllReduce:
      case OpKind::kSend:
      case OpKind::kRecv:
      case OpKind::kAllocate:
        break;
    }
    throw InvalidArgument(std::string(to_string(collective_.kind)) +
                          " is not a collective on a device");
  }

 private:
  void copy(std::byte* target, const std::byte* source, std::size_t bytes) {
    if (bytes == 0 || target == source || source == nullptr) return;
    work_.check(work_.device.copy(target, source, bytes, work_.stream), "copying");
  }
  void finish_average(std::byte* data, const NcclReduction& nccl) {
    if (!nccl.divides || collective_.count == 0) return;
    work_.check(work_.device.kernels().divide(data, collective_.dtype, collective_.count,
                                              static_cast<std::int64_t>(ranks_), work_.stream),
                "dividing");
  }
  int size() const { return static_cast<int>(ranks_); }
  template <class Body>
  void together(const Body& body) {
    flat_->call_together(
        to_string(collective_.kind), work_.wait, ranks_,
        [&](NcclHandle comm, std::size_t r) { return body(flat_->api(), comm, r); });
  }

  // Averages by NCCL itself: the others' buffers, and inputs, must stay as they are.
  void reduce() {
    const NcclReduction nccl = nccl_reduction(collective_.dtype, collective_.reduce_op);
    if (flat_ == nullptr || collective_.count == 0) return;
    flat_->call("reduce", work_.wait, [&](NcclHandle comm) {
      return flat_->api().reduce(collective_.output, collective_.output, collective_.count,
                                 nccl.type, nccl.op, collective_.root, comm, work_.stream);
    });
    if (static_cast<std::size_t>(collective_.root) == me_) finish_average(collective_.output, nccl);
  }

  void reduce_scatter() {
    const NcclReduction nccl = nccl_reduction(collective_.dtype, collective_.reduce_op);
    const auto parts = input_parts(collective_, size());
    if (flat_ == nullptr) return copy(collective_.output, parts[me_].data(), parts[me_].size());
    if (collective_.count == 0) return;
    if (collective_.input_parts.empty()) {
      flat_->call("reduce_scatter", work_.wait, [&](NcclHandle comm) {
        return flat_->api().reduce_scatter(collective_.input, collective_.output, collective_.count,
                                           nccl.type, nccl.op, comm, work_.stream);
      });
    } else {
      together([&](NcclApi& api, NcclHandle comm, std::size_t r) {
        return api.reduce(parts[r].data(), collective_.output, collective_.count, nccl.type,
                          nccl.op, static_cast<int>(r), comm, work_.stream);
      });
    }
    finish_average(collective_.output, nccl);
  }

  void all_gather() {
    const auto parts = output_parts(collective_, size());
    const std::byte* const own =
        collective_.input == nullptr ? parts[me_].data() : collective_.input;
    if (flat_ == nullptr) return copy(parts[me_].data(), own, parts[me_].size());
    if (collective_.output_parts.empty() && collective_.receive_counts.empty()) {
      if (collective_.count == 0) return;
      flat_->call("all_gather", work_.wait, [&](NcclHandle comm) {
        return flat_->api().all_gather(own, collective_.output, parts[me_].size(), comm,
                                       work_.stream);
      });
      return;
    }
    together([&](NcclApi& api, NcclHandle comm, std::size_t r) {
      if (parts[r].size() == 0) return NcclCode::kSuccess;
      return api.broadcast(r == me_ ? own : parts[r].data(), parts[r].data(), parts[r].size(),
                           static_cast<int>(r), comm, work_.stream);
    });
  }

  void broadcast() {
    if (flat_ == nullptr || collective_.count == 0) return;
    flat_->call("broadcast", work_.wait, [&](NcclHandle comm) {
      return flat_->api().broadcast(collective_.output, collective_.output,
                                    collective_.count * element_, collective_.root, comm,
                                    work_.stream);
    });
  }

  void gather() {
    const auto root = static_cast<std::size_t>(collective_.root);
    const std::size_t bytes = collective_.count * element_;
    if (bytes == 0) return;
    if (me_ != root) {
      flat_->call("gather", work_.wait, [&](NcclHandle comm) {
        return flat_->api().send(collective_.input, bytes, collective_.root, comm, work_.stream);
      });
      return;
    }
    const auto parts = output_parts(collective_, size());
    copy(parts[me_].data(), collective_.input, bytes);
    if (flat_ == nullptr) return;
    together([&](NcclApi& api, NcclHandle comm, std::size_t r) {
      return r == me_
                 ? NcclCode::kSuccess
                 : api.receive(parts[r].data(), bytes, static_cast<int>(r), comm, work_.stream);
    });
  }

  void scatter() {
    const auto root = static_cast<std::size_t>(collective_.root);
    const std::size_t bytes = collective_.count * element_;
    if (bytes == 0) return;
    if (me_ != root) {
      flat_->call("scatter", work_.wait, [&](NcclHandle comm) {
        return flat_->api().receive(collective_.output, bytes, collective_.root, comm,
                                    work_.stream);
      });
      return;
    }
    const auto parts = input_parts(collective_, size());
    copy(collective_.output, parts[me_].data(), bytes);
    if (flat_ == nullptr) return;
    together([&](NcclApi& api, NcclHandle comm, std::size_t r) {
      return r == me_ ? NcclCode::kSuccess
                      : api.send(parts[r].data(), bytes, static_cast<int>(r), comm, work_.stream);
    });
  }

  void all_to_all() {
    const auto out = input_parts(collective_, size());
    const auto in = output_parts(collective_, size());
    copy(in[me_].data(), out[me_].data(), in[me_].size());
    if (flat_ == nullptr) return;
    together([&](NcclApi& api, NcclHandle comm, std::size_t r) {
      if (r == me_) return NcclCode::kSuccess;
      const int peer = static_cast<int>(r);
      NcclCode code = NcclCode::kSuccess;
      if (out[r].size() != 0)
        code = api.send(out[r].data(), out[r].size(), peer, comm, work_.stream);
      if (is_bad(code) || in[r].size() == 0) return code;
      return api.receive(in[r].data(), in[r].size(), peer, comm, work_.stream);
    });
  }

  void barrier() {
    if (flat_ == nullptr) return;
    std::byte* const word = work_.scratch.get(1, work_.may_allocate);
    flat_->call("barrier", work_.wait, [&](NcclHandle comm) {
      return flat_->api().all_reduce(word, word, 1, DataType::kUInt8, ReduceOp::kMax, comm,
                                     work_.stream);
    });
  }

  const Collective& collective_;
  StreamWork& work_;
  NcclComm* const flat_;
  const std::size_t me_;
  const std::size_t ranks_;
  const std::size_t element_;
};

}  // namespace

void queue_collective(const Collective& collective, const DevicePlan& plan,
                      const StreamComms& comms, StreamWork& work,
                      const DeviceGroupOptions& options) {
  if (collective.kind != OpKind::kAllReduce) return Calls(collective, comms, work).queue();
  if (plan.is_hierarchical) {
    return queue_pipelined_all_reduce(comms, work, collective.output, collective.count,
                                      plan.reduction, options.chunk_bytes, plan.owners);
  }
  queue_flat_all_reduce(comms, work, collective.output, collective.count, plan.reduction);
}

void queue_transfers(std::span<const Collective> transfers, const StreamComms& comms,
                     StreamWork& work) {
  NcclApi& api = comms.flat->api();
  const auto move = [&](NcclHandle comm, std::size_t i) {
    const Collective& transfer = transfers[i];
    const std::size_t bytes = transfer.count * size_of(transfer.dtype);
    if (bytes == 0) return NcclCode::kSuccess;
    return transfer.kind == OpKind::kSend
               ? api.send(transfer.input, bytes, transfer.root, comm, work.stream)
               : api.receive(transfer.output, bytes, transfer.root, comm, work.stream);
  };
  comms.flat->call_together("transfers", work.wait, transfers.size(), move);
}

}  // namespace chainmail::ops
