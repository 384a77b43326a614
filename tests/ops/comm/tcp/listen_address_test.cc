// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Where ranks listen: the topology decides, never equal host names.

#include <mutex>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/net/socket.h"
#include "ops/comm/tcp/tcp_transport.h"
#include "tests/ops/support/groups.h"

namespace chainmail::ops {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

std::string host_of(const std::string& address) { return address.substr(0, address.rfind(':')); }
std::string host_of(const internal::SocketAddress& address) { return host_of(address.to_string()); }

/// Remembers the hosts of the addresses that are published.
class RecordingRendezvous final : public Rendezvous {
 public:
  void set(const std::string& key, const std::string& value) override {
    if (internal::parse_address(value)) {
      const std::lock_guard lock(mutex_);
      hosts_.push_back(host_of(value));
    }
    inner_.set(key, value);
  }
  std::optional<std::string> try_get(const std::string& key, internal::Deadline deadline) override {
    return inner_.try_get(key, deadline);
  }
  std::string get(const std::string& key, internal::Deadline deadline) override {
    return inner_.get(key, deadline);
  }
  const std::vector<std::string>& hosts() const { return hosts_; }

 private:
  LocalRendezvous inner_;
  std::mutex mutex_;
  std::vector<std::string> hosts_;
};

// Where the ranks of a group listen that all take themselves for being on "clone".
std::vector<std::string> published_hosts(const std::vector<int>& nodes) {
  const Topology topology = Topology::from_node_sizes(nodes);
  const auto rendezvous = std::make_shared<RecordingRendezvous>();
  test::run_ranks_ok(topology.size(), [&](int rank) {
    GroupOptions options;
    options.secret = std::string(32, 's');
    options.host = "clone";
    options.use_shared_memory = false;
    const auto group =
        create_group_with(default_comm_factory(options), rank, topology, rendezvous, options);
    std::vector<float> values(10, 1.0F);
    group->run(test::on(values));
    EXPECT_EQ(values[9], 2.0F);
  });
  return rendezvous->hosts();
}

TEST(ListenAddressTest, FollowsTheInterfaceThenTheTopology) {
  const std::string outside = host_of(internal::choose_address(""));
  TcpOptions options;
  options.names = {{0, "clone"}, {1, "clone"}};
  EXPECT_EQ(host_of(listen_address(options)), outside);
  options.on_one_node = true;
  EXPECT_EQ(host_of(listen_address(options)), "127.0.0.1");
  options.names[1].host = "other";
  EXPECT_EQ(host_of(listen_address(options)), "127.0.0.1");
  options.interface = outside;
  EXPECT_EQ(host_of(listen_address(options)), outside);
}

TEST(ListenAddressTest, TwoNodesWithOneNameListenWhereTheOtherReachesThem) {
  const std::string outside = host_of(internal::choose_address(""));
  if (outside == "127.0.0.1") {
    GTEST_SKIP() << "this machine has no interface but loopback";
  }
  const auto hosts = published_hosts({1, 1});
  EXPECT_THAT(hosts, SizeIs(2));
  EXPECT_THAT(hosts, Each(outside));
}

TEST(ListenAddressTest, OneNodeStaysOnLoopback) {
  const auto hosts = published_hosts({2});
  EXPECT_THAT(hosts, SizeIs(2));
  EXPECT_THAT(hosts, Each("127.0.0.1"));
}

}  // namespace
}  // namespace chainmail::ops
