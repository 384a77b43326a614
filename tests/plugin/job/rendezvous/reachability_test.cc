// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/job/rendezvous/reachability.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/net/socket.h"
#include "base/unique_fd.h"

namespace chainmail::internal {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::chrono::milliseconds kLong{60'000};
constexpr std::chrono::milliseconds kShort{100};

std::string why(const std::string& host, std::uint16_t port, std::chrono::milliseconds limit) {
  return why_no_answer(host, port, Deadline::after(limit)).problem;
}

bool is_connected(const UniqueFd& fd) {
  pollfd waiting{fd.get(), POLLOUT, 0};
  return ::poll(&waiting, 1, static_cast<int>(kShort.count())) == 1;
}

TEST(Reachability, AProcessThatDoesNotAnswer) {
  const UniqueFd listener = listen_on(loopback_address(), 8);
  const std::string place = local_address(listener.get()).to_string();
  const std::uint16_t port = local_address(listener.get()).port();
  // By its name it may have an address at which nobody listens.
  for (const char* host : {"127.0.0.1", "localhost"}) {
    EXPECT_TRUE(why_no_answer(host, port, Deadline::after(kLong)).takes_connections);
    EXPECT_EQ(
        why(host, port, kLong),
        "The store at " + place + " takes connections but does not answer; is rank 0 stopped?");
  }
}

TEST(Reachability, NobodyListens) {
  UniqueFd listener = listen_on(loopback_address(), 8);
  const std::uint16_t port = local_address(listener.get()).port();
  listener.reset();
  EXPECT_EQ(why("127.0.0.1", port, kLong), "Nobody listens at 127.0.0.1:" + std::to_string(port) +
                                               "; has rank 0 started, or has it ended?");
}

TEST(Reachability, AHostThatIsSilent) {
  // The kernel drops what would not fit into the backlog, as a firewall does.
  const UniqueFd listener = listen_on(loopback_address(), 1);
  const SocketAddress address = local_address(listener.get());
  std::vector<UniqueFd> connections;
  do {
    connections.push_back(start_connect(address));
  } while (is_connected(connections.back()));
  EXPECT_THAT(why("127.0.0.1", address.port(), kShort),
              StartsWith(address.to_string() + " does not answer; is its host up"));
}

TEST(Reachability, AnAddressWithoutARoute) {
  // A multicast address, which TCP refuses.
  EXPECT_THAT(why("224.0.0.1", 4711, kShort), HasSubstr("224.0.0.1:4711 cannot be reached: "));
}

TEST(Reachability, ANameThatIsNotKnown) {
  // Not a name by any rule, so that no server is asked.
  const std::string host(300, 'x');
  EXPECT_THAT(why(host, 4711, kLong),
              StartsWith("The host name " + host + " cannot be resolved: "));
}

}  // namespace
}  // namespace chainmail::internal
