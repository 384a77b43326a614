// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/p2p/schedules/moving.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

namespace chainmail::ops {
namespace {

// Round 0: from the parent; round 1: to the children. After the last piece whoever has heard from
// all its children tells its parent (rounds 2 and 3): nobody is through before all ranks below it
// have looked at the call's header, so that a mismatch is known to all in the call that has it.
// Ranks count from the root.
class Broadcast : public Schedule {
 public:
  using Schedule::Schedule;
  int round_count() const override { return 4; }

 protected:
  // What is sent in round 1 is received in round 0, what is sent in round 3 in round 2.
  int step_of(int round) const override { return round / 2; }
  void post_round(int round) override {
    const std::size_t begin = piece() * args().piece;
    const std::size_t bytes = std::min(args().piece, args().count - begin);
    const bool is_last = begin + bytes == args().count;
    const int own = (rank_ - args().root + size_) % size_;
    std::byte* data = args().data + begin;
    children_.clear();
    find_children(own, children_);
    if (round == 0 && own != 0) receive(absolute(parent(own)), data, bytes);
    if (round == 3 && own != 0 && is_last) send(absolute(parent(own)), nullptr, 0, true);
    for (const int child : children_) {
      if (round == 1) send(absolute(child), data, bytes);
      if (round == 2 && is_last) receive(absolute(child), nullptr, 0, true);
    }
  }
  virtual int parent(int own) const = 0;
  /// In the order in which they are served.
  virtual void find_children(int own, std::vector<int>& children) const = 0;

 private:
  int absolute(int relative) const { return (relative + args().root) % size_; }

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

// Empty parts travel too: nobody is through before it has heard of every rank's header, by itself
// or through those who pass the parts on, so that a mismatch is known to all in the call that has
// it.
class AllGather : public Schedule {
 public:
  using Schedule::Schedule;
  std::size_t piece_count(const CollectiveArgs& args) const override {
    return args.count == 0 ? 0 : 1;
  }

 protected:
  void receive_part(int peer, int index) {
    const std::span<std::byte> part = args().parts[static_cast<std::size_t>(index)];
    receive(peer, part.data(), part.size(), true);
  }
  void send_part(int peer, int index) {
    const std::span<const std::byte> part = args().parts[static_cast<std::size_t>(index)];
    send(peer, part.data(), part.size(), true);
  }
};

class AllGatherDirect final : public AllGather {
 public:
  using AllGather::AllGather;
  int round_count() const override { return 1; }

 protected:
  void post_round(int /*round*/) override {
    for (int i = 1; i < size_; ++i) receive_part(after(-i), after(-i));
    for (int i = 1; i < size_; ++i) send_part(after(i), rank_);
  }
};

class AllGatherRing final : public AllGather {
 public:
  using AllGather::AllGather;
  int round_count() const override { return size_ - 1; }

 protected:
  void post_round(int round) override {
    receive_part(after(-1), after(-1 - round));
    send_part(after(1), after(-round));
  }
};

// Two ranks that have bytes for each other in one direction send a message in both, so that each
// sees the other's header: else the sender of a gather would be through without having met anybody.
class AllToAll final : public Schedule {
 public:
  using Schedule::Schedule;
  std::size_t piece_count(const CollectiveArgs& /*args*/) const override { return 1; }
  int round_count() const override { return 1; }

 protected:
  void post_round(int /*round*/) override {
    for (int i = 1; i < size_; ++i) {
      const int peer = after(-i);
      receive(peer, incoming(peer).data(), incoming(peer).size(), exchanges_with(peer));
    }
    for (int i = 1; i < size_; ++i) {
      const int peer = after(i);
      send(peer, outgoing(peer).data(), outgoing(peer).size(), exchanges_with(peer));
    }
    const std::size_t own = std::min(incoming(rank_).size(), outgoing(rank_).size());
    const bool is_in_place = incoming(rank_).data() == outgoing(rank_).data();
    if (own != 0 && !is_in_place) std::memcpy(incoming(rank_).data(), outgoing(rank_).data(), own);
  }

 private:
  std::span<std::byte> incoming(int peer) const {
    return args().parts[static_cast<std::size_t>(peer)];
  }
  std::span<const std::byte> outgoing(int peer) const {
    return args().inputs[static_cast<std::size_t>(peer)];
  }
  bool exchanges_with(int peer) const { return !incoming(peer).empty() || !outgoing(peer).empty(); }
};

class Barrier final : public Schedule {
 public:
  using Schedule::Schedule;
  std::size_t piece_count(const CollectiveArgs& /*args*/) const override { return 1; }
  int round_count() const override {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(size_ - 1)));
  }

 protected:
  void post_round(int round) override {
    const int distance = 1 << round;
    receive(after(-distance), nullptr, 0, true);
    send(after(distance), nullptr, 0, true);
  }
};

}  // namespace

const ScheduleMaker make_broadcast_tree = make<BroadcastTree>;
const ScheduleMaker make_broadcast_chain = make<BroadcastChain>;
const ScheduleMaker make_all_gather_direct = make<AllGatherDirect>;
const ScheduleMaker make_all_gather_ring = make<AllGatherRing>;
const ScheduleMaker make_all_to_all = make<AllToAll>;
const ScheduleMaker make_barrier = make<Barrier>;

}  // namespace chainmail::ops
