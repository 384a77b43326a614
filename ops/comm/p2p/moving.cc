// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/p2p/moving.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace chainmail::ops {
namespace {

// Part `rank` of a buffer that is divided by bounds.
std::byte* part(const Job& job, int rank) {
  return job.data + job.bounds[static_cast<std::size_t>(rank)];
}
std::size_t part_bytes(const std::vector<std::size_t>& bounds, int rank) {
  const auto index = static_cast<std::size_t>(rank);
  return bounds[index + 1] - bounds[index];
}

// Round 0: from the parent; round 1: to the children. After the last piece whoever has heard from
// all its children tells its parent (rounds 2 and 3): nobody is through before all ranks below it
// have looked at the call's header, so that a mismatch is known to all in the call that has it.
// Ranks count from the root.
class Broadcast : public Schedule {
 public:
  using Schedule::Schedule;
  std::size_t piece_count(const Job& job) const override {
    return (job.count + job.piece - 1) / job.piece;
  }
  int round_count() const override { return 4; }

 protected:
  // What is sent in round 1 is received in round 0, what is sent in round 3 in round 2.
  int step_of(int round) const override { return round / 2; }
  void post_round(int round) override {
    const std::size_t begin = piece() * job().piece;
    const std::size_t bytes = std::min(job().piece, job().count - begin);
    const bool is_last = begin + bytes == job().count;
    const int own = (rank_ - job().root + size_) % size_;
    std::byte* data = job().data + begin;
    children_.clear();
    find_children(own, children_);
    if (round == 0 && own != 0) receive(absolute(parent(own)), data, bytes);
    if (round == 3 && own != 0 && is_last) send(absolute(parent(own)), nullptr, 0, true);
    for (const int child : children_) {
      if (round == 1) send(absolute(child), data, bytes);
      if (round == 2 && is_last) receive(absolute(child), nullptr, 0, true);
    }
  }
  void finish_round(int /*round*/) override {}
  virtual int parent(int own) const = 0;
  /// In the order in which they are served.
  virtual void find_children(int own, std::vector<int>& children) const = 0;

 private:
  int absolute(int relative) const { return (relative + job().root) % size_; }

  std::vector<int> children_;
};

class BroadcastTree final : public Broadcast {
 public:
  using Broadcast::Broadcast;

 protected:
  // A rank's parent lacks its lowest bit.
  int parent(int own) const override { return own & (own - 1); }
  void find_children(int own, std::vector<int>& children) const override {
    const auto size = static_cast<unsigned>(size_);
    unsigned bit = own == 0 ? std::bit_ceil(size) : static_cast<unsigned>(own & -own);
    // The largest subtree first: it has the longest way to go.
    for (bit >>= 1; bit != 0; bit >>= 1) {
      const unsigned child = static_cast<unsigned>(own) + bit;
      if (child < size) children.push_back(static_cast<int>(child));
    }
  }
};

class BroadcastChain final : public Broadcast {
 public:
  using Broadcast::Broadcast;

 protected:
  int parent(int own) const override { return own - 1; }
  void find_children(int own, std::vector<int>& children) const override {
    if (own + 1 < size_) children.push_back(own + 1);
  }
};

class AllGatherDirect final : public Schedule {
 public:
  using Schedule::Schedule;
  std::size_t piece_count(const Job& job) const override { return job.count == 0 ? 0 : 1; }
  int round_count() const override { return 1; }

 protected:
  void post_round(int /*round*/) override {
    for (int i = 1; i < size_; ++i) {
      receive(after(-i), part(job(), after(-i)), part_bytes(job().bounds, after(-i)));
    }
    for (int i = 1; i < size_; ++i) {
      send(after(i), part(job(), rank_), part_bytes(job().bounds, rank_));
    }
  }
  void finish_round(int /*round*/) override {}
};

class AllGatherRing final : public Schedule {
 public:
  using Schedule::Schedule;
  std::size_t piece_count(const Job& job) const override { return job.count == 0 ? 0 : 1; }
  int round_count() const override { return size_ - 1; }

 protected:
  void post_round(int round) override {
    const int incoming = after(-1 - round);
    const int outgoing = after(-round);
    receive(after(-1), part(job(), incoming), part_bytes(job().bounds, incoming));
    send(after(1), part(job(), outgoing), part_bytes(job().bounds, outgoing));
  }
  void finish_round(int /*round*/) override {}
};

// Two ranks that have bytes for each other in one direction send a message in both, so that each
// sees the other's header: else the sender of a gather would be through without having met anybody.
class AllToAll final : public Schedule {
 public:
  using Schedule::Schedule;
  std::size_t piece_count(const Job& /*job*/) const override { return 1; }
  int round_count() const override { return 1; }

 protected:
  void post_round(int /*round*/) override {
    for (int i = 1; i < size_; ++i) {
      const int peer = after(-i);
      receive(peer, part(job(), peer), part_bytes(job().bounds, peer), exchanges_with(peer));
    }
    for (int i = 1; i < size_; ++i) {
      const int peer = after(i);
      send(peer, input_part(peer), part_bytes(job().input_bounds, peer), exchanges_with(peer));
    }
    const std::size_t own =
        std::min(part_bytes(job().bounds, rank_), part_bytes(job().input_bounds, rank_));
    if (own != 0) std::memcpy(part(job(), rank_), input_part(rank_), own);
  }
  void finish_round(int /*round*/) override {}

 private:
  bool exchanges_with(int peer) const {
    return part_bytes(job().bounds, peer) + part_bytes(job().input_bounds, peer) != 0;
  }
  const std::byte* input_part(int rank) const {
    return job().input + job().input_bounds[static_cast<std::size_t>(rank)];
  }
};

class Barrier final : public Schedule {
 public:
  using Schedule::Schedule;
  std::size_t piece_count(const Job& /*job*/) const override { return 1; }
  int round_count() const override {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(size_ - 1)));
  }

 protected:
  void post_round(int round) override {
    const int distance = 1 << round;
    receive(after(-distance), nullptr, 0, true);
    send(after(distance), nullptr, 0, true);
  }
  void finish_round(int /*round*/) override {}
};

}  // namespace

std::unique_ptr<Schedule> make_broadcast_tree(Transport& transport) {
  return std::make_unique<BroadcastTree>(transport);
}
std::unique_ptr<Schedule> make_broadcast_chain(Transport& transport) {
  return std::make_unique<BroadcastChain>(transport);
}
std::unique_ptr<Schedule> make_all_gather_direct(Transport& transport) {
  return std::make_unique<AllGatherDirect>(transport);
}
std::unique_ptr<Schedule> make_all_gather_ring(Transport& transport) {
  return std::make_unique<AllGatherRing>(transport);
}
std::unique_ptr<Schedule> make_all_to_all(Transport& transport) {
  return std::make_unique<AllToAll>(transport);
}
std::unique_ptr<Schedule> make_barrier(Transport& transport) {
  return std::make_unique<Barrier>(transport);
}

}  // namespace chainmail::ops
