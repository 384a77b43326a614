// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A rank that has ended before the others met it: they are told, however they would have met.

#include "ops/core/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/create_group.h"
#include "ops/engine/group.h"

namespace chainmail::ops {
namespace {

using internal::Deadline;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kLong{100};

/// Says of rank 1 what `has_ended` does.
std::shared_ptr<Rendezvous> board_of(const std::shared_ptr<std::atomic<bool>>& has_ended) {
  return std::make_shared<LivenessRendezvous>(std::make_shared<LocalRendezvous>(),
                                              [has_ended](int rank) -> std::optional<RankEnd> {
                                                if (rank != 1 || !*has_ended) return std::nullopt;
                                                return RankEnd{41, "n1", "exited with code 0"};
                                              });
}

std::shared_ptr<std::atomic<bool>> flag(bool value) {
  return std::make_shared<std::atomic<bool>>(value);
}

// What rank 0 of two gets for an operation that rank 1 will never begin.
void expect_told(const Topology& topology, bool use_shared_memory, const Collective& collective) {
  const auto has_ended = flag(false);
  GroupOptions options;
  options.timeout = kLong;
  options.secret = std::string(32, 's');
  options.use_shared_memory = use_shared_memory;
  const auto group = create_group(0, topology, board_of(has_ended), options, {40, 41});
  const auto operation = group->submit(collective);
  *has_ended = true;
  try {
    operation->wait();
    FAIL() << "it has ended without rank 1";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.peer_rank(), 41);
    EXPECT_THAT(error.what(), HasSubstr("exited with code 0 before it"));
  }
}

TEST(RankLiveness, WhoWaitsForTheFirstMeetingIsTold) {
  Collective barrier;
  barrier.kind = OpKind::kBarrier;
  std::array<std::byte, 4> data{};
  Collective receive;
  receive.kind = OpKind::kRecv;
  receive.count = 1;
  receive.output = data.data();
  receive.root = 1;
  for (const Collective& collective : {barrier, receive}) {
    expect_told(Topology::single_node(2), true, collective);
    expect_told(Topology::single_node(2), false, collective);
    expect_told(Topology::from_node_sizes(std::array{1, 1}), true, collective);
  }
}

TEST(RankLiveness, WhoWaitsForAKeyIsTold) {
  const auto board = board_of(flag(true));
  board->set("key/0", "here");
  const auto key_of = [](int rank) { return "key/" + std::to_string(rank); };
  const auto get = [&](int rank) {
    return get_from(*board, rank, 3, key_of, Deadline::after(kLong), "set its key");
  };
  EXPECT_EQ(get(0), "here");
  EXPECT_THROW(static_cast<void>(get(1)), PeerError);
}

TEST(RankLiveness, ALaterRankThatHasEndedIsNoticedWhileAnEarlierOneIsLate) {
  const auto board = board_of(flag(true));
  const auto key_of = [](int rank) { return "key/" + std::to_string(rank); };
  try {
    static_cast<void>(get_from(*board, 0, 2, key_of, Deadline::after(kLong), "set its key"));
    FAIL() << "rank 0 has set nothing";
  } catch (const PeerError& error) {
    EXPECT_STREQ(error.what(), "rank 41 on host n1 exited with code 0 before it set its key");
  }
}

TEST(RankLiveness, WhatARankLeftBeforeItEndedCounts) {
  const auto board = board_of(flag(true));
  const auto key_of = [](int rank) { return "key/" + std::to_string(rank); };
  std::thread late([&] {
    // On its way while the rank has ended already.
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    board->set("key/1", "here");
  });
  EXPECT_EQ(get_from(*board, 1, 2, key_of, Deadline::after(kLong), "set its key"), "here");
  late.join();
}

/// Does not answer for a while.
class SlowRendezvous final : public Rendezvous {
 public:
  using Rendezvous::try_get;
  void set(const std::string& key, const std::string& value) override { inner_.set(key, value); }
  std::string get(const std::string& key, Deadline deadline) override {
    return inner_.get(key, deadline);
  }
  std::optional<std::string> try_get(const std::string& key, Deadline deadline) override {
    if (!silence_.has_passed()) throw TimeoutError("no answer");
    return inner_.try_get(key, deadline);
  }

 private:
  LocalRendezvous inner_;
  const Deadline silence_ = Deadline::after(std::chrono::milliseconds{700});
};

TEST(RankLiveness, WhereThereIsNoAnswerNothingIsMissing) {
  LivenessRendezvous board(std::make_shared<SlowRendezvous>(), [](int rank) {
    return RankEnd{rank, "n1", "exited with code 0"};
  });
  board.set("key/1", "here");
  const auto key_of = [](int rank) { return "key/" + std::to_string(rank); };
  EXPECT_EQ(get_from(board, 1, 2, key_of, Deadline::after(kLong), "set its key"), "here");
}

TEST(RankLiveness, EndsAreAskedForByTheNumbersOfTheGroup) {
  const auto view = rendezvous_of({7, 1}, board_of(flag(true)));
  auto& liveness = dynamic_cast<RankLiveness&>(*view);
  EXPECT_FALSE(liveness.end_of(0));
  EXPECT_TRUE(liveness.end_of(1));
  const auto plain = std::make_shared<LocalRendezvous>();
  EXPECT_EQ(rendezvous_of({0}, plain), plain);
}

}  // namespace
}  // namespace chainmail::ops
