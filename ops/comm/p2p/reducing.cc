// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/p2p/reducing.h"

#include <algorithm>
#include <bit>
#include <span>

#include "ops/kernels/cpu/kernels.h"

namespace chainmail::ops {
namespace {

// Slices start at whole cache lines of the smallest type, so that vector loops run undisturbed.
constexpr std::size_t kSliceAlignment = 64;

struct Range {
  std::size_t begin = 0;
  std::size_t count = 0;
};

/// What the reducing schedules have in common: where the piece is, sums in rank order.
class Reducing : public Schedule {
 public:
  using Schedule::Schedule;
  std::size_t piece_count(const Job& job) const override {
    return (job.count + job.piece - 1) / job.piece;
  }

 protected:
  Range piece_range() const {
    const std::size_t begin = piece() * job().piece;
    return {begin, std::min(job().piece, job().count - begin)};
  }
  /// Slice `rank` of the current piece.
  Range slice(int rank) const {
    const Range all = piece_range();
    const auto size = static_cast<std::size_t>(size_);
    std::size_t length = (all.count + size - 1) / size;
    length = (length + kSliceAlignment - 1) / kSliceAlignment * kSliceAlignment;
    const std::size_t begin = std::min(static_cast<std::size_t>(rank) * length, all.count);
    return {all.begin + begin, std::min(length, all.count - begin)};
  }
  std::byte* at(std::size_t element) const { return job().data + element * job().element_bytes(); }

  void pack(std::byte* halves, const std::byte* source, std::size_t count, double scale) {
    if (round_to_wire(halves, source, count, job().reduction.dtype, scale, job().reduction.wire)) {
      flags_ |= kFlagNonFinite;
    }
  }
  void unpack(std::byte* destination, const std::byte* halves, std::size_t count) const {
    widen_from_wire(destination, halves, count, job().reduction.dtype, job().reduction.wire);
  }
  /// sources_ of elements on the wire, in rank order, into `destination`.
  void combine(std::byte* destination, std::size_t count) {
    const Reduction& reduction = job().reduction;
    if (!job().is_compressed()) {
      reduce(destination, sources_, count, reduction.dtype, reduction.op, reduction.scale);
      finish_average(destination, count, reduction, size_);
      return;
    }
    unpack(destination, sources_.front(), count);
    for (std::size_t i = 1; i < sources_.size(); ++i) {
      accumulate_from_wire(destination, sources_[i], count, reduction.dtype, reduction.wire);
    }
  }
  /// Two operands in a fixed order, without the factor.
  void combine_pair(std::byte* destination, const std::byte* first, const std::byte* second,
                    std::size_t count) {
    sources_.assign({first, second});
    reduce(destination, sources_, count, job().reduction.dtype, job().reduction.op);
  }
  /// The factor, once the last operand is in.
  void finish(std::byte* data, std::size_t count) const {
    const Reduction& reduction = job().reduction;
    if (is_floating_point(reduction.dtype) && reduction.scale != 1.0) {
      scale_in_place(data, count, reduction.dtype, reduction.scale);
    }
    finish_average(data, count, reduction, size_);
  }

  std::vector<const std::byte*> sources_;
  Scratch packed_;
  Scratch received_;
};

class Exchange final : public Reducing {
 public:
  using Reducing::Reducing;
  int round_count() const override { return 1; }

 protected:
  void post_round(int /*round*/) override {
    const Range range = piece_range();
    const std::size_t bytes = range.count * job().wire_bytes();
    std::byte* received = received_.get(bytes * static_cast<std::size_t>(size_));
    const std::byte* own = at(range.begin);
    sources_.resize(static_cast<std::size_t>(size_));
    for (int i = 1; i < size_; ++i) {
      const auto peer = static_cast<std::size_t>(after(-i));
      sources_[peer] = received + peer * bytes;
      receive(after(-i), received + peer * bytes, bytes);
    }
    if (job().is_compressed()) {
      pack(packed_.get(bytes), own, range.count, job().reduction.scale);
      own = packed_.get(bytes);
    }
    sources_[static_cast<std::size_t>(rank_)] = own;
    for (int i = 1; i < size_; ++i) send(after(i), own, bytes);
  }
  void finish_round(int /*round*/) override {
    const Range range = piece_range();
    combine(at(range.begin), range.count);
  }
};

class Direct final : public Reducing {
 public:
  using Reducing::Reducing;
  int round_count() const override { return 2; }

 protected:
  void post_round(int round) override { round == 0 ? post_parts() : post_results(); }
  void finish_round(int round) override { round == 0 ? reduce_own() : unpack_results(); }

 private:
  /// Element of the piece as it lies in packed_, or in the data when nothing is packed.
  std::byte* on_wire(std::size_t element) {
    if (!job().is_compressed()) return at(element);
    const Range range = piece_range();
    return packed_.get(range.count * 2) + (element - range.begin) * 2;
  }

  void post_parts() {
    const Range range = piece_range();
    const Range own = slice(rank_);
    const std::size_t bytes = own.count * job().wire_bytes();
    std::byte* received = received_.get(bytes * static_cast<std::size_t>(size_));
    sources_.resize(static_cast<std::size_t>(size_));
    for (int i = 1; i < size_; ++i) {
      const auto peer = static_cast<std::size_t>(after(-i));
      sources_[peer] = received + peer * bytes;
      receive(after(-i), received + peer * bytes, bytes);
    }
    if (job().is_compressed()) {
      pack(on_wire(range.begin), at(range.begin), range.count, job().reduction.scale);
    }
    sources_[static_cast<std::size_t>(rank_)] = on_wire(own.begin);
    for (int i = 1; i < size_; ++i) {
      const Range part = slice(after(i));
      send(after(i), on_wire(part.begin), part.count * job().wire_bytes());
    }
  }

  void reduce_own() {
    const Range own = slice(rank_);
    if (own.count == 0) return;
    combine(at(own.begin), own.count);
    if (!job().is_compressed()) return;
    pack(on_wire(own.begin), at(own.begin), own.count, 1.0);
    unpack(at(own.begin), on_wire(own.begin), own.count);
  }

  // A slice that comes back may land where it was sent from: its owner has had all of it.
  void post_results() {
    const Range own = slice(rank_);
    for (int i = 1; i < size_; ++i) {
      const Range part = slice(after(-i));
      receive(after(-i), on_wire(part.begin), part.count * job().wire_bytes());
    }
    for (int i = 1; i < size_; ++i) {
      send(after(i), on_wire(own.begin), own.count * job().wire_bytes());
    }
  }

  void unpack_results() {
    if (!job().is_compressed()) return;
    for (int i = 1; i < size_; ++i) {
      const Range part = slice(after(i));
      unpack(at(part.begin), on_wire(part.begin), part.count);
    }
  }
};

class Ring final : public Reducing {
 public:
  using Reducing::Reducing;
  int round_count() const override { return 2 * (size_ - 1); }

 protected:
  bool is_reducing(int round) const { return round < size_ - 1; }
  // First the slices of others pass by and grow; what arrives last is this rank's own, finished.
  int outgoing(int round) const {
    return is_reducing(round) ? after(-1 - round) : after(-(round - (size_ - 1)));
  }
  int incoming(int round) const {
    return is_reducing(round) ? after(-2 - round) : after(-1 - (round - (size_ - 1)));
  }

  void post_round(int round) override {
    const Range in = slice(incoming(round));
    const Range out = slice(outgoing(round));
    const std::size_t in_bytes = in.count * job().element_bytes();
    receive(after(-1), is_reducing(round) ? received_.get(in_bytes) : at(in.begin), in_bytes);
    send(after(1), at(out.begin), out.count * job().element_bytes());
  }

  void finish_round(int round) override {
    if (!is_reducing(round)) return;
    const Range in = slice(incoming(round));
    if (in.count == 0) return;
    combine_pair(at(in.begin), received_.get(0), at(in.begin), in.count);
    if (round == size_ - 2) finish(at(in.begin), in.count);
  }
};

// Ranks beyond the largest power of two hand their part to a partner first and get the result last.
class Doubling final : public Reducing {
 public:
  using Reducing::Reducing;
  int round_count() const override {
    const int steps = static_cast<int>(std::bit_width(static_cast<unsigned>(power()))) - 1;
    return steps + 2;
  }

 protected:
  int power() const { return static_cast<int>(std::bit_floor(static_cast<unsigned>(size_))); }
  bool is_last(int round) const { return round == round_count() - 1; }

  void post_round(int round) override {
    const Range range = piece_range();
    const std::size_t bytes = range.count * job().element_bytes();
    const bool is_extra = rank_ >= power();
    if (round == 0 || is_last(round)) {
      const int partner = is_extra ? rank_ - power() : rank_ + power();
      if (partner >= size_) return;
      const bool sends = is_extra == (round == 0);
      if (sends) send(partner, at(range.begin), bytes);
      if (!sends) receive(partner, round == 0 ? received_.get(bytes) : at(range.begin), bytes);
      return;
    }
    if (is_extra) return;
    const int partner = rank_ ^ (1 << (round - 1));
    receive(partner, received_.get(bytes), bytes);
    send(partner, at(range.begin), bytes);
  }

  void finish_round(int round) override {
    const Range range = piece_range();
    if (is_last(round) || rank_ >= power()) return;
    const std::byte* received = received_.get(0);
    std::byte* own = at(range.begin);
    if (round == 0) {
      if (rank_ + power() < size_) combine_pair(own, own, received, range.count);
    } else {
      const bool is_lower = (rank_ & (1 << (round - 1))) == 0;
      combine_pair(own, is_lower ? own : received, is_lower ? received : own, range.count);
    }
    if (is_last(round + 1)) finish(own, range.count);
  }
};

class ReduceScatter final : public Reducing {
 public:
  using Reducing::Reducing;
  std::size_t piece_count(const Job& job) const override {
    std::size_t longest = 0;
    for (const auto& part : job.inputs) longest = std::max(longest, part.size());
    return (longest / job.element_bytes() + job.piece - 1) / job.piece;
  }
  int round_count() const override { return 1; }

 protected:
  // The current piece of a rank's part.
  Range part(int rank) const {
    const std::size_t end =
        job().inputs[static_cast<std::size_t>(rank)].size() / job().element_bytes();
    const std::size_t begin = std::min(piece() * job().piece, end);
    return {begin, std::min(job().piece, end - begin)};
  }
  const std::byte* input(int rank, std::size_t element) const {
    return job().inputs[static_cast<std::size_t>(rank)].data() + element * job().element_bytes();
  }

  void post_round(int /*round*/) override {
    const Range own = part(rank_);
    const std::size_t bytes = own.count * job().wire_bytes();
    std::byte* received = received_.get(bytes * static_cast<std::size_t>(size_));
    sources_.resize(static_cast<std::size_t>(size_));
    for (int i = 1; i < size_; ++i) {
      const auto peer = static_cast<std::size_t>(after(-i));
      sources_[peer] = received + peer * bytes;
      receive(after(-i), received + peer * bytes, bytes);
    }
    for (int i = 0; i < size_; ++i) {
      const std::byte* wire = pack_part(after(i));
      if (i == 0) sources_[static_cast<std::size_t>(rank_)] = wire;
      if (i != 0) send(after(i), wire, part(after(i)).count * job().wire_bytes());
    }
  }

  const std::byte* pack_part(int rank) {
    const Range range = part(rank);
    if (!job().is_compressed()) return input(rank, range.begin);
    std::byte* halves = packed_.get(2 * job().piece * static_cast<std::size_t>(size_)) +
                        2 * job().piece * static_cast<std::size_t>(rank);
    pack(halves, input(rank, range.begin), range.count, job().reduction.scale);
    return halves;
  }

  void finish_round(int /*round*/) override {
    const Range own = part(rank_);
    if (own.count != 0) combine(at(own.begin), own.count);
  }
};

}  // namespace

void finish_average(std::byte* data, std::size_t count, const Reduction& reduction, int size) {
  const bool divides = reduction.op == ReduceOp::kAvg && !is_floating_point(reduction.dtype);
  if (divides && size > 1 && count != 0) divide_in_place(data, count, reduction.dtype, size);
}

std::unique_ptr<Schedule> make_exchange(Transport& transport) {
  return std::make_unique<Exchange>(transport);
}
std::unique_ptr<Schedule> make_direct(Transport& transport) {
  return std::make_unique<Direct>(transport);
}
std::unique_ptr<Schedule> make_ring(Transport& transport) {
  return std::make_unique<Ring>(transport);
}
std::unique_ptr<Schedule> make_doubling(Transport& transport) {
  return std::make_unique<Doubling>(transport);
}
std::unique_ptr<Schedule> make_reduce_scatter(Transport& transport) {
  return std::make_unique<ReduceScatter>(transport);
}

}  // namespace chainmail::ops
