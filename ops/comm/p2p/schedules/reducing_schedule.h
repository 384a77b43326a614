// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the schedules that combine elements have in common: where a piece and its slices are, sums
// in rank order, rounding to a compressed wire.
//
// Private to ops/comm/p2p/schedules. Not thread-safe.

#pragma once

#include <cstddef>
#include <vector>

#include "ops/comm/p2p/schedules/schedule.h"

namespace chainmail::ops {

struct Range {
  std::size_t begin = 0;
  std::size_t count = 0;
};

class ReducingSchedule : public Schedule {
 public:
  using Schedule::Schedule;
  /// Of an all_reduce: pieces of what is rounded to the wire come first, and none has both.
  std::size_t piece_count(const CollectiveArgs& args) const override;

 protected:
  Range piece_range() const;
  /// Whether the current piece is rounded.
  bool is_rounded() const;
  /// Bytes of a message of so many of its elements.
  std::size_t message_bytes(std::size_t elements) const;
  /// Slice `rank` of the current piece.
  Range slice(int rank) const;
  std::byte* at(std::size_t element) const {
    return args().data + element * args().element_bytes();
  }

  /// `residual` is the first of a Reduction's, or null; that of `element` is taken.
  void pack(std::byte* message, const std::byte* source, std::size_t count, double scale,
            std::byte* residual = nullptr, std::size_t element = 0);
  void unpack(std::byte* destination, const std::byte* message, std::size_t count) const;
  /// sources_ of elements on the wire, as the reduction says, into `destination`.
  void combine(std::byte* destination, std::size_t count);
  /// Two operands in a fixed order, without the factor.
  void combine_pair(std::byte* destination, const std::byte* first, const std::byte* second,
                    std::size_t count);
  /// The factor, once the last operand is in.
  void finish(std::byte* data, std::size_t count) const;
  /// Posts a receive of `bytes` from every other rank into received_, and points sources_ there.
  void receive_from_all(std::size_t bytes, bool even_empty = false);

  std::vector<const std::byte*> sources_;
  Scratch packed_;
  Scratch received_;

 private:
  void widen_sources(std::size_t count);

  Scratch widened_;
};

}  // namespace chainmail::ops
