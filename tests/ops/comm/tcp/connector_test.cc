// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a rank knows of peers that its dials do not reach.

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/net/socket.h"
#include "ops/comm/tcp/connector.h"

namespace chainmail::ops {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr milliseconds kLong{300};

/// Where SYNs are dropped: its queue has room for one connection, which is there.
class Deaf {
 public:
  Deaf() {
    pollfd connected{filler_.get(), POLLOUT, 0};
    EXPECT_EQ(::poll(&connected, 1, -1), 1);
  }
  std::string address() const { return internal::local_address(listener_.get()).to_string(); }
  void hear() {
    const internal::UniqueFd first(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    EXPECT_TRUE(first.is_open());
  }

 private:
  internal::UniqueFd listener_ = internal::listen_on(internal::loopback_address(), 0);
  internal::UniqueFd filler_ = internal::start_connect(internal::local_address(listener_.get()));
};

/// Rank 0, which wants to reach rank 1.
struct Dialer {
  explicit Dialer(const std::string& address) {
    rendezvous->set("peer/1", address);
    connector.want(1);
  }
  /// Until `is_true`; what the connector throws goes through.
  void go_on_until(const auto& is_true) {
    while (!is_true()) {
      connector.progress(true);
      ::usleep(1000);
    }
  }

  const std::vector<PeerName> names{{0, "here"}, {1, "there"}};
  const std::shared_ptr<LocalRendezvous> rendezvous = std::make_shared<LocalRendezvous>();
  const internal::UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
  Connector connector{{.secret = std::string(32, 's'), .group = "world", .rank = 0, .size = 2},
                      names,
                      internal::loopback_address(),
                      rendezvous,
                      "peer/",
                      epoll.get(),
                      0};
};

TEST(Connector, TellsWhomNoDialHasReachedForLong) {
  Deaf peer;
  Dialer dialer(peer.address());
  EXPECT_THAT(dialer.connector.unanswered(kLong), IsEmpty());
  const auto began = std::chrono::steady_clock::now();
  dialer.go_on_until([&] { return !dialer.connector.unanswered(kLong).empty(); });
  EXPECT_THAT(dialer.connector.unanswered(kLong), ElementsAre(1));
  EXPECT_GE(std::chrono::steady_clock::now() - began, kLong);
  // The kernel tries again after a second.
  peer.hear();
  dialer.go_on_until([&] { return dialer.connector.unanswered(kLong).empty(); });
}

TEST(Connector, NamesWhoNeverAnswers) {
  const Deaf peer;
  Dialer dialer(peer.address());
  try {
    dialer.go_on_until([] { return false; });
    FAIL() << "went on";
  } catch (const PeerError& error) {
    EXPECT_EQ(error.peer_rank(), 1);
    EXPECT_THAT(error.what(),
                HasSubstr("rank 1 on host there does not answer at " + peer.address()));
  }
  EXPECT_THAT(dialer.connector.unanswered(kLong), ElementsAre(1));
}

}  // namespace
}  // namespace chainmail::ops
