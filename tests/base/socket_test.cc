// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/net/socket.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace chainmail::internal {
namespace {

TEST(SocketTest, AddressesComeBackAsTheyWereWritten) {
  for (const char* text : {"127.0.0.1:0", "10.1.2.3:65535", "[::1]:4711", "[fe80::1%lo]:22"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->to_string(), text);
  }
}

TEST(SocketTest, WhatIsNoAddressIsRefused) {
  for (const char* text : {"", ":", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:65536", "1.2.3:4",
                           "1.2.3.4:-1", "::1:5", "[::1:5", "[]:5", "name:5", "1.2.3.4: 5"}) {
    EXPECT_FALSE(parse_address(text)) << text;
  }
}

TEST(SocketTest, InterfacesAreFoundByNameAndByAddress) {
  EXPECT_EQ(choose_address("lo").to_string(), "127.0.0.1:0");
  EXPECT_EQ(choose_address("127.0.0.1").to_string(), "127.0.0.1:0");
  EXPECT_EQ(choose_address("").port(), 0);
}

TEST(SocketTest, AnUnknownInterfaceIsAnErrorThatListsTheKnownOnes) {
  try {
    (void)choose_address("no-such-0");
    FAIL() << "no error";
  } catch (const InvalidArgument& error) {
    EXPECT_NE(std::string(error.what()).find("no-such-0"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("lo (127.0.0.1)"), std::string::npos);
  }
}

TEST(SocketTest, TheKernelChoosesThePort) {
  const UniqueFd first = listen_on(loopback_address(), 1);
  const UniqueFd second = listen_on(loopback_address(), 1);
  EXPECT_NE(local_address(first.get()).port(), 0);
  EXPECT_NE(local_address(first.get()).port(), local_address(second.get()).port());
}

}  // namespace
}  // namespace chainmail::internal
