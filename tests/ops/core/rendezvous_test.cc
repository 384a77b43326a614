// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/core/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"

namespace chainmail::ops {
namespace {

using internal::Deadline;
using std::chrono::milliseconds;

TEST(LocalRendezvousTest, GetWaitsForTheKey) {
  LocalRendezvous rendezvous;
  EXPECT_FALSE(rendezvous.try_get("address").has_value());
  std::thread other([&rendezvous] {
    std::this_thread::sleep_for(milliseconds{20});
    rendezvous.set("address", "here");
  });
  EXPECT_EQ(rendezvous.get("address", Deadline::after(std::chrono::seconds{30})), "here");
  other.join();
  EXPECT_EQ(rendezvous.try_get("address"), "here");
}

TEST(LocalRendezvousTest, AKeyThatNeverComesIsATimeoutThatNamesIt) {
  LocalRendezvous rendezvous;
  rendezvous.set("other", "value");
  try {
    (void)rendezvous.get("world/address/3", Deadline::after(milliseconds{10}));
    FAIL() << "no exception";
  } catch (const TimeoutError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr("world/address/3"));
  }
}

}  // namespace
}  // namespace chainmail::ops
