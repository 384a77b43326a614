// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/doors.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "base/net/socket.h"
#include "plugin/job/node_id.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;

// What a rank of this network namespace puts on the board.
std::string near(const UniqueFd& door) {
  return local_address(door.get()).to_string() + " " + network_id();
}

// Asked `times` times, as often as ranks ask.
std::optional<ops::RankEnd> ask(Doors& doors, int rank, int times) {
  std::optional<ops::RankEnd> end;
  for (int i = 0; i < times && !end; ++i) {
    end = doors.end_of(rank);
    std::this_thread::sleep_for(milliseconds(50));
  }
  return end;
}

TEST(Doors, AClosedDoorIsTheEndOfItsRank) {
  const auto board = std::make_shared<ops::LocalRendezvous>();
  Doors doors(board);
  EXPECT_FALSE(ask(doors, 1, 3)) << "no door yet";
  UniqueFd door = listen_on(loopback_address(), 8);
  board->set(Doors::key_of(1), near(door));
  EXPECT_FALSE(ask(doors, 1, 12));
  door.reset();
  const auto end = ask(doors, 1, 400);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->rank, 1);
  EXPECT_EQ(end->cause, "has ended");
}

TEST(Doors, OneThatWasClosedBeforeAnybodyKnockedIsSeen) {
  const auto board = std::make_shared<ops::LocalRendezvous>();
  UniqueFd door = listen_on(loopback_address(), 8);
  board->set(Doors::key_of(0), near(door));
  door.reset();
  Doors doors(board);
  EXPECT_TRUE(ask(doors, 0, 400));
}

TEST(Doors, OneThatMayBeOutOfReachIsNotCalledClosed) {
  const auto board = std::make_shared<ops::LocalRendezvous>();
  UniqueFd door = listen_on(loopback_address(), 8);
  const std::string address = local_address(door.get()).to_string();
  door.reset();  // as a firewall, or the loopback of another container, refuses
  board->set(Doors::key_of(0), address);
  board->set(Doors::key_of(1), address + " of another network");
  Doors doors(board);
  EXPECT_FALSE(ask(doors, 0, 15));
  EXPECT_FALSE(ask(doors, 1, 15));
}

TEST(Doors, OneOfAnotherNodeThatHasLetUsInIsBelieved) {
  const auto board = std::make_shared<ops::LocalRendezvous>();
  UniqueFd door = listen_on(loopback_address(), 8);
  board->set(Doors::key_of(0), local_address(door.get()).to_string());
  Doors doors(board);
  doors.visit({0, 1});  // rank 1 has no door yet
  door.reset();
  EXPECT_TRUE(ask(doors, 0, 400));
  // Another group of the same process has not been there itself.
  Doors others(board);
  EXPECT_TRUE(ask(others, 0, 400));
}

TEST(Doors, RanksOfOneProcessSeeEachOther) {
  const auto board = std::make_shared<ops::LocalRendezvous>();
  const auto topology = ops::Topology::single_node(2);
  const auto attendance = open_doors(board, 1, topology, {});
  ASSERT_TRUE(attendance);
  EXPECT_TRUE(board->try_get(Doors::key_of(1)));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(attendance->end_of(1));
}

TEST(Doors, NobodyJudgesByThemWhereMpiCarriesTheData) {
  JobSettings settings;
  settings.cross = ops::CrossTransport::kMpi;
  const auto board = std::make_shared<ops::LocalRendezvous>();
  EXPECT_FALSE(open_doors(board, 0, ops::Topology::from_node_sizes(std::array{1, 1}), settings));
  EXPECT_TRUE(open_doors(board, 0, ops::Topology::single_node(2), settings));
}

}  // namespace
}  // namespace chainmail::internal
