// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/p2p/schedules/reducing_schedule.h"

#include <algorithm>

#include "base/bytes.h"
#include "ops/comm/combine.h"
#include "ops/comm/p2p/schedules/reducing.h"
#include "ops/kernels/cpu/blocks.h"
#include "ops/kernels/cpu/kernels.h"

namespace chainmail::ops {
namespace {

// Slices start at whole cache lines of the smallest type, so that vector loops run undisturbed.
constexpr std::size_t kSliceAlignment = 64;

std::size_t pieces(std::size_t count, std::size_t piece) { return (count + piece - 1) / piece; }

}  // namespace

void finish_average(std::byte* data, std::size_t count, const Reduction& reduction, int size) {
  const bool divides = reduction.op == ReduceOp::kAvg && !is_floating_point(reduction.dtype);
  if (divides && size > 1 && count != 0) divide_in_place(data, count, reduction.dtype, size);
}

std::size_t ReducingSchedule::piece_count(const CollectiveArgs& args) const {
  const std::size_t rounded = args.compressed_count();
  return pieces(rounded, args.piece) + pieces(args.count - rounded, args.native_piece);
}

bool ReducingSchedule::is_rounded() const {
  return piece() < pieces(args().compressed_count(), args().piece);
}

std::size_t ReducingSchedule::message_bytes(std::size_t elements) const {
  return is_rounded() ? message_size(elements, args().reduction.wire)
                      : elements * args().element_bytes();
}

Range ReducingSchedule::piece_range() const {
  const std::size_t rounded = args().compressed_count();
  if (is_rounded()) {
    const std::size_t begin = piece() * args().piece;
    return {begin, std::min(args().piece, rounded - begin)};
  }
  const std::size_t begin =
      rounded + (piece() - pieces(rounded, args().piece)) * args().native_piece;
  return {begin, std::min(args().native_piece, args().count - begin)};
}

Range ReducingSchedule::slice(int rank) const {
  const Range all = piece_range();
  const auto size = static_cast<std::size_t>(size_);
  const std::size_t unit =
      is_rounded() ? kWireBlock : slice_unit(args().reduction, kSliceAlignment);
  const std::size_t length = internal::round_up((all.count + size - 1) / size, unit);
  const std::size_t begin = std::min(static_cast<std::size_t>(rank) * length, all.count);
  return {all.begin + begin, std::min(length, all.count - begin)};
}

void ReducingSchedule::pack(std::byte* message, const std::byte* source, std::size_t count,
                            double scale, std::byte* residual, std::size_t element) {
  const WireFormat wire = args().reduction.wire;
  if (residual != nullptr) residual += element * sizeof(float);
  const bool has_nonfinite =
      is_in_blocks(wire) ? encode_blocks({message, message_bytes(count)}, source, residual, count,
                                         scale, wire, args().reduction.rounding_error)
                         : round_to_wire(message, source, count, scale, wire);
  if (has_nonfinite) flags_ |= kFlagNonFinite;
}

void ReducingSchedule::unpack(std::byte* destination, const std::byte* message,
                              std::size_t count) const {
  const WireFormat wire = args().reduction.wire;
  is_in_blocks(wire) ? decode_blocks(destination, {message, message_bytes(count)}, count, wire)
                     : widen_from_wire(destination, message, count, wire);
}

void ReducingSchedule::combine(std::byte* destination, std::size_t count) {
  const Reduction& reduction = args().reduction;
  if (is_rounded() && reduction.tree != nullptr) widen_sources(count);
  if (!is_rounded() || reduction.tree != nullptr) {
    ops::combine({&destination, 1}, sources_, count, reduction);
    finish_average(destination, count, reduction, size_);
    return;
  }
  if (is_in_blocks(reduction.wire)) {
    sum_from_blocks(destination, sources_, message_bytes(count), count, reduction.wire);
    return;
  }
  const bool is_mean = reduction.scale * size_ <= 1.0;
  sum_from_wire(destination, sources_, count, reduction.wire, is_mean);
}

void ReducingSchedule::widen_sources(std::size_t count) {
  const std::size_t bytes = count * args().element_bytes();
  std::byte* wide = widened_.get(bytes * sources_.size());
  for (const std::byte*& source : sources_) {
    unpack(wide, source, count);
    source = wide;
    wide += bytes;
  }
}

void ReducingSchedule::combine_pair(std::byte* destination, const std::byte* first,
                                    const std::byte* second, std::size_t count) {
  sources_.assign({first, second});
  reduce(destination, sources_, count, args().reduction.dtype, args().reduction.op);
}

void ReducingSchedule::finish(std::byte* data, std::size_t count) const {
  const Reduction& reduction = args().reduction;
  if (is_floating_point(reduction.dtype) && reduction.scale != 1.0) {
    scale_in_place(data, count, reduction.dtype, reduction.scale);
  }
  finish_average(data, count, reduction, size_);
}

void ReducingSchedule::receive_from_all(std::size_t bytes, bool even_empty) {
  std::byte* received = received_.get(bytes * static_cast<std::size_t>(size_));
  sources_.resize(static_cast<std::size_t>(size_));
  for (int i = 1; i < size_; ++i) {
    const auto peer = static_cast<std::size_t>(after(-i));
    sources_[peer] = received + peer * bytes;
    receive(after(-i), received + peer * bytes, bytes, even_empty);
  }
}

}  // namespace chainmail::ops
