// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Partial results pass from rank to rank, for many ranks.

#include <bit>

#include "ops/comm/p2p/schedules/reducing.h"
#include "ops/comm/p2p/schedules/reducing_schedule.h"

namespace chainmail::ops {
namespace {

class Ring final : public ReducingSchedule {
 public:
  using ReducingSchedule::ReducingSchedule;
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
    const std::size_t in_bytes = in.count * args().element_bytes();
    receive(after(-1), is_reducing(round) ? received_.get(in_bytes) : at(in.begin), in_bytes);
    send(after(1), at(out.begin), out.count * args().element_bytes());
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
class Doubling final : public ReducingSchedule {
 public:
  using ReducingSchedule::ReducingSchedule;
  int round_count() const override {
    const int steps = static_cast<int>(std::bit_width(static_cast<unsigned>(power()))) - 1;
    return steps + 2;
  }

 protected:
  int power() const { return static_cast<int>(std::bit_floor(static_cast<unsigned>(size_))); }
  bool is_last(int round) const { return round == round_count() - 1; }

  void post_round(int round) override {
    const Range range = piece_range();
    const std::size_t bytes = range.count * args().element_bytes();
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

}  // namespace

const ScheduleMaker make_ring = make<Ring>;
const ScheduleMaker make_doubling = make<Doubling>;

}  // namespace chainmail::ops
