// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/base/membership/sim/exchange.h"

namespace chainmail::membership::sim {
namespace {

std::uint64_t values_of(ShardNumber first, ShardNumber end, std::uint64_t step,
                        std::uint64_t position, std::uint64_t state, std::uint32_t bucket) {
  const std::uint64_t base = mix(state + mix(position + (step << 32U) + bucket));
  std::uint64_t sum = 0;
  for (ShardNumber shard = first; shard < end; ++shard) sum += mix(base + shard);
  return sum;
}

std::uint64_t with_bucket(std::uint64_t state, std::uint64_t value) {
  return mix(state * 3 + value);
}

}  // namespace

std::uint64_t next_state(std::uint64_t state, std::uint64_t step, std::uint64_t position,
                         const ExchangeShape& shape) {
  std::uint64_t next = state;
  for (std::uint32_t bucket = 0; bucket < shape.buckets; ++bucket) {
    const std::uint64_t value = values_of(0, shape.shards, step, position, state, bucket);
    next = with_bucket(next, value);
  }
  return next;
}

void Exchange::connect(const World& world, std::uint32_t rank, Generation segment) {
  generation_ = world.generation;
  segment_ = segment;
  size_ = static_cast<std::uint8_t>(world.members.size());
  rank_ = static_cast<std::uint8_t>(rank);
  is_begun_ = false;
  step_ = 0;
  for (std::size_t i = 0; i < world.members.size(); ++i) {
    members_.at(i) = static_cast<std::uint16_t>(world.members[i]);
  }
  first_shard_ = world.cut[rank];
  end_shard_ = world.cut[rank + 1];
  for (auto& parity : buckets_) {
    for (Bucket& bucket : parity) {
      bucket.step = 0;
      bucket.pieces_here = bucket.results_here = 0;
      bucket.is_wanted = false;
    }
  }
}

Exchange::Bucket& Exchange::bucket_of(std::uint32_t step, std::uint32_t number) {
  Bucket& bucket = buckets_[step % 2][number];
  if (bucket.step != step) {
    bucket.step = step;
    bucket.pieces_here = bucket.results_here = 0;
    bucket.is_wanted = false;
  }
  return bucket;
}

void Exchange::send_to_all(Packet packet, std::vector<Packet>& out) const {
  packet.from = members_[rank_];
  packet.rank = rank_;
  packet.generation = generation_;
  packet.segment = segment_;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    packet.to = members_[rank];
    out.push_back(packet);
  }
}

void Exchange::begin(std::uint32_t step, std::uint64_t position, std::uint64_t state,
                     bool is_wanted, std::vector<Packet>& out) {
  is_begun_ = true;
  step_ = step;
  state_ = state;
  for (std::uint32_t number = 0; number < shape_->buckets; ++number) {
    const bool has_lane = number + 1 == shape_->buckets;
    Packet piece;
    piece.bucket = static_cast<std::uint8_t>(number);
    piece.flag = has_lane && is_wanted;
    piece.step = step;
    piece.value = values_of(first_shard_, end_shard_, step, position, state, number);
    send_to_all(piece, out);
    Bucket& bucket = bucket_of(step, number);
    bucket.pieces[rank_] = piece.value;
    bucket.pieces_here = static_cast<std::uint8_t>(bucket.pieces_here | (1U << rank_));
    bucket.is_wanted |= piece.flag;
    sum_up(bucket, number, out);
  }
}

void Exchange::receive(const Packet& packet, std::vector<Packet>& out) {
  if (packet.step < buckets_[packet.step % 2][packet.bucket].step) return;
  Bucket& bucket = bucket_of(packet.step, packet.bucket);
  bucket.is_wanted |= packet.flag;
  const auto bit = static_cast<std::uint8_t>(1U << packet.rank);
  if (packet.kind == Packet::Kind::kResult) {
    bucket.results[packet.rank] = packet.value;
    bucket.results_here |= bit;
    return;
  }
  bucket.pieces[packet.rank] = packet.value;
  bucket.pieces_here |= bit;
  sum_up(bucket, packet.bucket, out);
}

// The owner's part, once all pieces are there.
void Exchange::sum_up(Bucket& bucket, std::uint32_t number, std::vector<Packet>& out) {
  if (bucket.pieces_here != all()) return;
  std::uint64_t sum = 0;
  for (std::uint32_t rank = 0; rank < size_; ++rank) sum += bucket.pieces[rank];
  if (!shape_->has_slices) {
    for (std::uint32_t rank = 0; rank < size_; ++rank) bucket.results[rank] = sum;
    bucket.results_here = all();
    return;
  }
  bucket.results[rank_] = sum;
  bucket.results_here = static_cast<std::uint8_t>(bucket.results_here | (1U << rank_));
  Packet result;
  result.kind = Packet::Kind::kResult;
  result.bucket = static_cast<std::uint8_t>(number);
  result.flag = bucket.is_wanted;
  result.step = bucket.step;
  result.value = sum;
  send_to_all(result, out);
}

bool Exchange::is_complete() const {
  if (!is_begun_) return false;
  for (std::uint32_t number = 0; number < shape_->buckets; ++number) {
    const Bucket& bucket = buckets_[step_ % 2][number];
    if (bucket.step != step_ || bucket.results_here != all()) return false;
  }
  return true;
}

bool Exchange::is_wanted() const { return buckets_[step_ % 2][shape_->buckets - 1].is_wanted; }

// Slices that differ would be seen as a state that is not the shards': their sum is mixed in.
std::uint64_t Exchange::result() const {
  std::uint64_t next = state_;
  for (std::uint32_t number = 0; number < shape_->buckets; ++number) {
    const Bucket& bucket = buckets_[step_ % 2][number];
    std::uint64_t value = bucket.results[0];
    for (std::uint32_t rank = 1; rank < size_; ++rank) {
      if (bucket.results[rank] != bucket.results[0]) value = mix(value + bucket.results[rank]);
    }
    next = with_bucket(next, value);
  }
  return next;
}

std::uint64_t Exchange::digest() const {
  std::uint64_t digest = mix(segment_ * 2 + (is_begun_ ? 1 : 0)) + step_;
  if (segment_ == 0) return digest;
  for (const auto& parity : buckets_) {
    for (std::uint32_t number = 0; number < shape_->buckets; ++number) {
      const Bucket& bucket = parity[number];
      if (bucket.step < step_ || bucket.step == 0) continue;
      digest = mix(digest + bucket.step * 2 + (bucket.is_wanted ? 1 : 0));
      for (std::uint32_t rank = 0; rank < size_; ++rank) {
        const bool has_piece = ((bucket.pieces_here >> rank) & 1U) != 0;
        const bool has_result = ((bucket.results_here >> rank) & 1U) != 0;
        digest = mix(digest + (has_piece ? bucket.pieces[rank] : 1));
        digest = mix(digest + (has_result ? bucket.results[rank] : 2));
      }
    }
  }
  return digest;
}

}  // namespace chainmail::membership::sim
