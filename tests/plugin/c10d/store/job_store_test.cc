// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a rank says whose job's store it cannot open.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/net/socket.h"
#include "plugin/job/job_connection.h"

namespace chainmail::internal {
namespace {

std::string refusal(const std::string& host, std::uint16_t port) {
  JobInfo info;
  info.starter = Starter::kTorchrun;
  info.rank = 1;
  info.size = 2;
  info.store = StoreLocation::kTcp;
  info.host = host;
  info.port = port;
  try {
    static_cast<void>(connect_job_store(info, std::chrono::milliseconds{100}));
    return "";
  } catch (const TimeoutError& error) {
    EXPECT_EQ(error.missing_ranks(), std::vector<int>{0});
    return error.what();
  }
}

TEST(JobStore, SaysWhyItIsOutOfReach) {
  using ::testing::HasSubstr;
  UniqueFd listener = listen_on(loopback_address(), 8);
  const std::uint16_t port = local_address(listener.get()).port();
  EXPECT_THAT(refusal("127.0.0.1", port), HasSubstr("takes connections but does not answer"));
  listener.reset();
  EXPECT_THAT(refusal("127.0.0.1", port), HasSubstr("Nobody listens at 127.0.0.1:"));
  EXPECT_THAT(refusal(std::string(300, 'x'), port), HasSubstr("x cannot be resolved: "));
}

}  // namespace
}  // namespace chainmail::internal
