// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How many messages, and bytes, an all-reduce sends between nodes: counted by the transports, on
// nodes of four ranks that are threads of this process.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "ops/comm/p2p/p2p_comm.h"
#include "ops/core/rendezvous.h"
#include "ops/engine/comms/comm_factory.h"
#include "ops/engine/create_group.h"
#include "tests/ops/support/ranks.h"
#include "tests/ops/support/thread_transport.h"

namespace chainmail::ops {
namespace {

constexpr std::size_t kMebi = std::size_t{1} << 20;

/// Joins ranks of different nodes by messages between threads, and keeps what they have sent.
class CountedNodes {
 public:
  CountedNodes(std::vector<int> nodes, Algorithm algorithm)
      : topology_(Topology::from_node_sizes(nodes)),
        sent_(static_cast<std::size_t>(topology_.size())) {
    options_.algorithm = algorithm;
    options_.chunk_bytes = kMebi;
  }

  /// What each rank sends to other nodes in one all_reduce of `bytes` of float32.
  std::vector<TransportCounters> all_reduce(std::size_t bytes) {
    test::run_ranks_ok(topology_.size(), [&](int rank) {
      const P2pComm* cross = nullptr;
      CommFactory factory = default_comm_factory(options_);
      factory.anywhere = [&](const CommRequest& request, const GroupOptions&, const OpContext&) {
        auto comm = std::make_unique<P2pComm>(
            std::make_unique<ThreadTransport>(hub(request), request.rank));
        cross = comm.get();
        return comm;
      };
      const auto group = create_group_with(factory, rank, topology_, rendezvous_, options_);
      std::vector<float> data(bytes / sizeof(float), 1.0F);
      Collective collective;
      collective.count = data.size();
      collective.output = reinterpret_cast<std::byte*>(data.data());
      group->run(collective);
      const auto sum = static_cast<float>(topology_.size());
      EXPECT_TRUE(std::all_of(data.begin(), data.end(), [=](float x) { return x == sum; }));
      if (cross != nullptr) sent_[static_cast<std::size_t>(rank)] = cross->transport().counters();
      group->shutdown();
    });
    return sent_;
  }

  std::uint64_t bytes_of_node(int node) const {
    std::uint64_t sum = 0;
    for (const int rank : topology_.ranks_of_node(node)) {
      sum += sent_[static_cast<std::size_t>(rank)].payload_bytes_sent;
    }
    return sum;
  }

 private:
  std::shared_ptr<ThreadHub> hub(const CommRequest& request) {
    const std::lock_guard lock(mutex_);
    auto& hub = hubs_[request.name];
    if (hub == nullptr) hub = std::make_shared<ThreadHub>(static_cast<int>(request.ranks.size()));
    return hub;
  }

  Topology topology_;
  GroupOptions options_;
  std::shared_ptr<LocalRendezvous> rendezvous_ = std::make_shared<LocalRendezvous>();
  std::vector<TransportCounters> sent_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<ThreadHub>> hubs_;
};

// S bytes over N nodes: every node sends 2 S (N - 1) / N, which is the least there is.
std::uint64_t fewest_bytes(std::size_t bytes, std::size_t nodes) {
  return 2 * bytes * (nodes - 1) / nodes;
}

TEST(MessagesTest, TwoNodesExchangeOneMessagePerRankAndChunk) {
  constexpr std::size_t kChunks = 8;
  CountedNodes nodes({4, 4}, Algorithm::kTwoDimensional);
  for (const TransportCounters& sent : nodes.all_reduce(kChunks * kMebi)) {
    EXPECT_EQ(sent.messages_sent, kChunks);
  }
  EXPECT_EQ(nodes.bytes_of_node(0), fewest_bytes(kChunks * kMebi, 2));
}

TEST(MessagesTest, MoreNodesSendTwoMessagesPerPeerAndChunk) {
  constexpr std::size_t kChunks = 6;
  for (const int count : {3, 4}) {
    CountedNodes nodes(std::vector<int>(static_cast<std::size_t>(count), 4),
                       Algorithm::kTwoDimensional);
    for (const TransportCounters& sent : nodes.all_reduce(kChunks * kMebi)) {
      EXPECT_LE(sent.messages_sent, kChunks * 2U * static_cast<unsigned>(count - 1));
      EXPECT_GT(sent.messages_sent, 0U);
    }
    // Slices end at cache lines, so that one node may have a little more to send than another.
    const auto fewest = fewest_bytes(kChunks * kMebi, static_cast<std::size_t>(count));
    EXPECT_LE(nodes.bytes_of_node(0), fewest + fewest / 100);
  }
}

TEST(MessagesTest, OnlyLeadersSendUnderHierarchical) {
  CountedNodes nodes({4, 4}, Algorithm::kHierarchical);
  const auto sent = nodes.all_reduce(std::size_t{64} << 10);
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    EXPECT_EQ(sent[rank].messages_sent, rank % 4 == 0 ? 1U : 0U) << "rank " << rank;
  }
}

TEST(MessagesTest, AutoSendsOneSmallMessagePerNode) {
  CountedNodes nodes({4, 4}, Algorithm::kAuto);
  std::uint64_t messages = 0;
  for (const TransportCounters& sent : nodes.all_reduce(256)) messages += sent.messages_sent;
  EXPECT_EQ(messages, 2U);
}

}  // namespace
}  // namespace chainmail::ops
