// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/rendezvous/liveness_probe.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "base/net/socket.h"
#include "plugin/job/environment/node_id.h"

namespace chainmail::internal {
namespace {

using std::chrono::milliseconds;

// What a rank of this network namespace publishes.
std::string near(const UniqueFd& socket) {
  return local_address(socket.get()).to_string() + " " + network_id();
}

// Asked `times` times, as often as ranks ask.
std::optional<ops::RankEnd> ask(LivenessProbe& probe, int rank, int times) {
  std::optional<ops::RankEnd> end;
  for (int i = 0; i < times && !end; ++i) {
    end = probe.end_of(rank);
    std::this_thread::sleep_for(milliseconds(50));
  }
  return end;
}

TEST(LivenessProbe, AClosedSocketIsTheEndOfItsRank) {
  const auto rendezvous = std::make_shared<ops::LocalRendezvous>();
  LivenessProbe probe(rendezvous);
  EXPECT_FALSE(ask(probe, 1, 3)) << "no address yet";
  UniqueFd socket = listen_on(loopback_address(), 8);
  rendezvous->set(LivenessProbe::key_of(1), near(socket));
  EXPECT_FALSE(ask(probe, 1, 12));
  socket.reset();
  const auto end = ask(probe, 1, 400);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->rank, 1);
  EXPECT_EQ(end->cause, "has ended");
}

TEST(LivenessProbe, ASocketClosedBeforeTheFirstConnectionIsSeen) {
  const auto rendezvous = std::make_shared<ops::LocalRendezvous>();
  UniqueFd socket = listen_on(loopback_address(), 8);
  rendezvous->set(LivenessProbe::key_of(0), near(socket));
  socket.reset();
  LivenessProbe probe(rendezvous);
  EXPECT_TRUE(ask(probe, 0, 400));
}

TEST(LivenessProbe, AnAddressThatMayBeUnreachableIsNotCalledClosed) {
  const auto rendezvous = std::make_shared<ops::LocalRendezvous>();
  UniqueFd socket = listen_on(loopback_address(), 8);
  const std::string address = local_address(socket.get()).to_string();
  socket.reset();  // as a firewall, or the loopback of another container, refuses
  rendezvous->set(LivenessProbe::key_of(0), address);
  rendezvous->set(LivenessProbe::key_of(1), address + " of another network");
  LivenessProbe probe(rendezvous);
  EXPECT_FALSE(ask(probe, 0, 15));
  EXPECT_FALSE(ask(probe, 1, 15));
}

TEST(LivenessProbe, ARefusalByAPeerThatWasReachedBeforeCounts) {
  const auto rendezvous = std::make_shared<ops::LocalRendezvous>();
  UniqueFd socket = listen_on(loopback_address(), 8);
  rendezvous->set(LivenessProbe::key_of(0), local_address(socket.get()).to_string());
  LivenessProbe probe(rendezvous);
  probe.probe_once({0, 1});  // rank 1 has no address yet
  socket.reset();
  EXPECT_TRUE(ask(probe, 0, 400));
  // Another group of the same process has not connected itself.
  LivenessProbe others(rendezvous);
  EXPECT_TRUE(ask(others, 0, 400));
}

TEST(LivenessProbe, RanksOfOneProcessSeeEachOther) {
  const auto rendezvous = std::make_shared<ops::LocalRendezvous>();
  const auto topology = ops::Topology::single_node(2);
  const auto attendance = start_liveness_probe(rendezvous, 1, topology, {});
  ASSERT_TRUE(attendance);
  EXPECT_TRUE(rendezvous->try_get(LivenessProbe::key_of(1)));
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(attendance->end_of(1));
}

TEST(LivenessProbe, IsNotUsedWhereMpiCarriesTheData) {
  JobSettings settings;
  settings.cross = ops::CrossTransport::kMpi;
  const auto rendezvous = std::make_shared<ops::LocalRendezvous>();
  EXPECT_FALSE(start_liveness_probe(rendezvous, 0, ops::Topology::from_node_sizes(std::array{1, 1}),
                                    settings));
  EXPECT_TRUE(start_liveness_probe(rendezvous, 0, ops::Topology::single_node(2), settings));
}

}  // namespace
}  // namespace chainmail::internal
