// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tools/bench/machine/wire.h"

#include <gtest/gtest.h>

namespace chainmail::bench {
namespace {

constexpr char kHead[] =
    "Inter-|   Receive                            |  Transmit\n"
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets\n";

TEST(WireTest, SentBytesOfAllButLoopback) {
  std::string text = kHead;
  text +=
      "    lo:  111 1 0 0 0 0 0 0  222 1 0 0 0 0 0 0\n"
      "  eth0:  333 2 0 0 0 0 0 0  444 3 0 0 0 0 0 0\n"
      "lodge1:1000 2 0 0 0 0 0 0    6 3 0 0 0 0 0 0\n";
  EXPECT_EQ(sum_bytes_sent(text), 450u);
}

TEST(WireTest, WhatIsNoCounterCountsNothing) {
  for (const char* text : {"", ":", "eth0:", "eth0: 1 2 3", "eth0: a b c d e f g h i", "x\ny:\n"}) {
    EXPECT_EQ(sum_bytes_sent(text), 0u) << text;
  }
}

}  // namespace
}  // namespace chainmail::bench
