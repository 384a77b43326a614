// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/algorithms/stream/stream_flat.h"

#include <algorithm>
#include <bit>

#include "ops/algorithms/stream/nccl_reduction.h"

namespace chainmail::ops {
namespace {

// Bounds the scratch memory; a message of this size is as quick as a longer one.
constexpr std::size_t kPieceElements = std::size_t{32} << 20;

void all_reduce_halves(const StreamComms& comms, StreamWork& work, std::byte* data,
                       std::size_t count, const Reduction& reduction) {
  const DataType half = wire_type(reduction.wire);
  const std::size_t element = size_of(reduction.dtype);
  std::byte* const halves =
      work.scratch.get(flat_scratch_bytes(count, reduction), work.may_allocate);
  DeviceKernels& kernels = work.device.kernels();
  NcclApi& api = comms.flat->api();
  for (std::size_t begin = 0; begin < count; begin += kPieceElements) {
    const std::size_t length = std::min(kPieceElements, count - begin);
    std::byte* const piece = data + begin * element;
    work.check(kernels.convert(halves, half, piece, reduction.dtype, length, reduction.scale,
                               nullptr, work.stream),
               "rounding to the wire format");
    comms.flat->call("all_reduce", work.wait, [&](NcclHandle comm) {
      return api.all_reduce(halves, halves, length, half, ReduceOp::kSum, comm, work.stream);
    });
    work.check(
        kernels.convert(piece, reduction.dtype, halves, half, length, 1.0, work.flag, work.stream),
        "widening from the wire format");
  }
}

}  // namespace

std::size_t flat_scratch_bytes(std::size_t count, const Reduction& reduction) noexcept {
  return reduction.wire == WireFormat::kNative ? 0 : std::min(count, kPieceElements) * 2;
}

void queue_flat_all_reduce(const StreamComms& comms, StreamWork& work, std::byte* data,
                           std::size_t count, const Reduction& reduction) {
  if (comms.flat == nullptr || count == 0) return;
  if (reduction.wire != WireFormat::kNative) {
    return all_reduce_halves(comms, work, data, count, reduction);
  }
  const auto ranks = static_cast<std::size_t>(comms.flat->size());
  const NcclReduction nccl = nccl_reduction(reduction.dtype, reduction.op);
  ReduceOp op = nccl.op;
  if (op == ReduceOp::kAvg && is_narrow(reduction.dtype) && !std::has_single_bit(ranks)) {
    // NCCL multiplies by 1/ranks rounded to 16 bits, which is wrong by up to 0.2 %.
    work.check(
        work.device.kernels().convert(data, reduction.dtype, data, reduction.dtype, count,
                                      1.0 / static_cast<double>(ranks), nullptr, work.stream),
        "scaling");
    op = ReduceOp::kSum;
  }
  NcclApi& api = comms.flat->api();
  comms.flat->call("all_reduce", work.wait, [&](NcclHandle comm) {
    return api.all_reduce(data, data, count, nccl.type, op, comm, work.stream);
  });
  if (nccl.divides) {
    work.check(work.device.kernels().divide(data, reduction.dtype, count,
                                            static_cast<std::int64_t>(ranks), work.stream),
               "dividing");
  }
}

}  // namespace chainmail::ops
