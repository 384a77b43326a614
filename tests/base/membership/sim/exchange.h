// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The simulated data plane of one rank: the slice exchange over values that are hashes.
//
// Rank r owns slice r of each bucket: it receives a piece from every rank and sends the sum back to
// all. A value is the sum of one hash per shard, of (step, position, shard, state before), so a
// lost, doubled or mixed contribution gives another state than the one that the shards alone
// determine. One thread.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/membership/types.h"

namespace chainmail::membership::sim {

inline constexpr std::uint32_t kMostRanks = 6;
inline constexpr std::uint32_t kMostBuckets = 2;

[[nodiscard]] constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ (value >> 31U)) * 0x9e3779b97f4a7c15U;
  return value ^ (value >> 29U);
}

/// One message between two members.
struct Packet {
  enum class Kind : std::uint8_t { kPiece, kResult, kFetch, kState };
  Kind kind = Kind::kPiece;
  std::uint8_t bucket = 0;
  std::uint8_t rank = 0;  ///< the place of the sender's value
  bool flag = false;      ///< lane of a piece or result; kState: finished
  std::uint16_t from = 0;
  std::uint16_t to = 0;
  Generation generation = 0;
  Generation segment = 0;
  std::uint32_t step = 0;
  std::uint64_t value = 0;
  std::uint64_t position = 0;  ///< of kState
};

/// How the exchange is played: with one bucket, and every rank as the owner of everything (pieces
/// only), there are fewer states to visit.
struct ExchangeShape {
  std::uint32_t shards = 8;
  std::uint32_t buckets = 1;
  bool has_slices = true;
};

/// What all shards of step `step` make of `state`.
[[nodiscard]] std::uint64_t next_state(std::uint64_t state, std::uint64_t step,
                                       std::uint64_t position, const ExchangeShape& shape);

class Exchange {
 public:
  explicit Exchange(const ExchangeShape& shape) : shape_(&shape) {}

  void connect(const World& world, std::uint32_t rank, Generation segment);
  void disconnect() { segment_ = 0; }
  [[nodiscard]] bool is_connected() const { return segment_ != 0; }
  [[nodiscard]] Generation generation() const { return generation_; }
  [[nodiscard]] Generation segment() const { return segment_; }

  /// Sends this rank's pieces.
  void begin(std::uint32_t step, std::uint64_t position, std::uint64_t state, bool is_wanted,
             std::vector<Packet>& out);
  /// A piece or result of this segment.
  void receive(const Packet& packet, std::vector<Packet>& out);
  /// All buckets of the step that was begun are complete.
  [[nodiscard]] bool is_complete() const;
  [[nodiscard]] bool is_wanted() const;
  /// The state after the completed step.
  [[nodiscard]] std::uint64_t result() const;
  void finish() { is_begun_ = false; }

  [[nodiscard]] std::uint64_t digest() const;

 private:
  struct Bucket {
    std::uint32_t step = 0;
    std::uint8_t pieces_here = 0;
    std::uint8_t results_here = 0;
    bool is_wanted = false;
    std::array<std::uint64_t, kMostRanks> pieces{};
    std::array<std::uint64_t, kMostRanks> results{};
  };

  Bucket& bucket_of(std::uint32_t step, std::uint32_t bucket);
  void send_to_all(Packet packet, std::vector<Packet>& out) const;
  void sum_up(Bucket& bucket, std::uint32_t number, std::vector<Packet>& out);
  [[nodiscard]] std::uint8_t all() const { return static_cast<std::uint8_t>((1U << size_) - 1); }

  const ExchangeShape* shape_;
  Generation generation_ = 0;
  Generation segment_ = 0;
  std::uint8_t size_ = 0;
  std::uint8_t rank_ = 0;
  bool is_begun_ = false;
  std::uint32_t step_ = 0;
  std::uint64_t state_ = 0;
  std::array<std::uint16_t, kMostRanks> members_{};
  ShardNumber first_shard_ = 0;
  ShardNumber end_shard_ = 0;
  // Of the step under way and of the next one, in which faster ranks may be already.
  std::array<std::array<Bucket, kMostBuckets>, 2> buckets_{};
};

}  // namespace chainmail::membership::sim
