// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Contributions go to those who combine them, without a stop between.

#include <algorithm>

#include "ops/comm/p2p/schedules/reducing.h"
#include "ops/comm/p2p/schedules/reducing_schedule.h"

namespace chainmail::ops {
namespace {

class Exchange final : public ReducingSchedule {
 public:
  using ReducingSchedule::ReducingSchedule;
  int round_count() const override { return 1; }

 protected:
  void post_round(int /*round*/) override {
    const Range range = piece_range();
    const std::size_t bytes = message_bytes(range.count);
    const std::byte* own = at(range.begin);
    receive_from_all(bytes);
    if (is_rounded()) {
      pack(packed_.get(bytes), own, range.count, args().reduction.scale,
           args().reduction.contribution_residual, range.begin);
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

class Direct final : public ReducingSchedule {
 public:
  using ReducingSchedule::ReducingSchedule;
  int round_count() const override { return 2; }

 protected:
  void post_round(int round) override { round == 0 ? post_parts() : post_results(); }
  void finish_round(int round) override { round == 0 ? reduce_own() : unpack_results(); }

 private:
  /// A rank's slice of the piece as it lies in packed_, or in the data when nothing is packed.
  std::byte* on_wire(int rank) {
    if (!is_rounded()) return at(slice(rank).begin);
    const std::size_t longest = message_bytes(slice(0).count);
    return packed_.get(longest * static_cast<std::size_t>(size_)) +
           longest * static_cast<std::size_t>(rank);
  }

  void post_parts() {
    receive_from_all(message_bytes(slice(rank_).count));
    for (int i = 1; i <= size_; ++i) {  // its own slice last: nobody waits for that
      const int owner = after(i);
      const Range part = slice(owner);
      if (is_rounded()) {
        pack(on_wire(owner), at(part.begin), part.count, args().reduction.scale,
             args().reduction.contribution_residual, part.begin);
      }
      if (owner != rank_) send(owner, on_wire(owner), message_bytes(part.count));
    }
    sources_[static_cast<std::size_t>(rank_)] = on_wire(rank_);
  }

  void reduce_own() {
    const Range own = slice(rank_);
    if (own.count == 0) return;
    combine(at(own.begin), own.count);
    if (!is_rounded()) return;
    pack(on_wire(rank_), at(own.begin), own.count, 1.0, args().reduction.result_residual,
         own.begin);
    unpack(at(own.begin), on_wire(rank_), own.count);
  }

  // A slice that comes back may land where it was sent from: its owner has had all of it.
  void post_results() {
    for (int i = 1; i < size_; ++i) {
      const int owner = after(-i);
      receive(owner, on_wire(owner), message_bytes(slice(owner).count));
    }
    const std::size_t bytes = message_bytes(slice(rank_).count);
    for (int i = 1; i < size_; ++i) send(after(i), on_wire(rank_), bytes);
  }

  void unpack_results() {
    if (!is_rounded()) return;
    for (int i = 1; i < size_; ++i) {
      const Range part = slice(after(i));
      unpack(at(part.begin), on_wire(after(i)), part.count);
    }
  }
};

class ReduceScatter final : public ReducingSchedule {
 public:
  using ReducingSchedule::ReducingSchedule;
  std::size_t piece_count(const CollectiveArgs& args) const override {
    std::size_t longest = 0;
    for (const auto& part : args.inputs) longest = std::max(longest, part.size());
    return (longest / args.element_bytes() + args.piece - 1) / args.piece;
  }
  int round_count() const override { return 1; }

 protected:
  // The current piece of a rank's part.
  Range part(int rank) const {
    const std::size_t end =
        args().inputs[static_cast<std::size_t>(rank)].size() / args().element_bytes();
    const std::size_t begin = std::min(piece() * args().piece, end);
    return {begin, std::min(args().piece, end - begin)};
  }
  const std::byte* input(int rank, std::size_t element) const {
    return args().inputs[static_cast<std::size_t>(rank)].data() + element * args().element_bytes();
  }

  void post_round(int /*round*/) override {
    // So that who gets nothing hears of all headers too.
    const bool even_empty = piece() == 0;
    receive_from_all(message_bytes(part(rank_).count), even_empty);
    for (int i = 0; i < size_; ++i) {
      const std::byte* wire = pack_part(after(i));
      if (i == 0) sources_[static_cast<std::size_t>(rank_)] = wire;
      if (i != 0) send(after(i), wire, message_bytes(part(after(i)).count), even_empty);
    }
  }

  const std::byte* pack_part(int rank) {
    const Range range = part(rank);
    if (!is_rounded()) return input(rank, range.begin);
    const std::size_t longest = message_bytes(args().piece);
    std::byte* message = packed_.get(longest * static_cast<std::size_t>(size_)) +
                         longest * static_cast<std::size_t>(rank);
    pack(message, input(rank, range.begin), range.count, args().reduction.scale);
    return message;
  }

  void finish_round(int /*round*/) override {
    const Range own = part(rank_);
    if (own.count != 0) combine(at(own.begin), own.count);
  }
};

}  // namespace

const ScheduleMaker make_exchange = make<Exchange>;
const ScheduleMaker make_direct = make<Direct>;
const ScheduleMaker make_reduce_scatter = make<ReduceScatter>;

}  // namespace chainmail::ops
