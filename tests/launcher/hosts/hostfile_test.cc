// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What texts of hostfiles mean is in hosts/corpus.txt; here is the rest.

#include "launcher/hosts/hostfile.h"

#include <gtest/gtest.h>

#include <random>

namespace chainmail::launch {
namespace {

TEST(Hostfile, WrittenSlotsAreToldFromTheOneThatIsAssumed) {
  const auto hosts = parse_hostfile("a\nb slots=1\nc:1\nd\nd\n[::1]\n", "hosts");
  std::string written;
  for (const Host& host : hosts) written += host.has_slots ? "y" : "n";
  EXPECT_EQ(written, "nyyyn");
}

TEST(Hostfile, MessagesShowNoControlCharacters) {
  try {
    (void)parse_host_list("n1,\x1b[2Jn2", "-H");
    FAIL() << "accepted";
  } catch (const HostfileError& error) {
    EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
  }
}

// Whatever the bytes: hosts or HostfileError, and what is accepted could stand on a command line.
TEST(Hostfile, SurvivesMutations) {
  const std::string seed =
      "bob@node01:4 port=22 # x\n[fd00::1]:2 max_slots=4\r\nn2 slots = 2 // y\n10.0.0.1:2\n";
  std::mt19937 random(20260101);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed;
    for (int change = 0; change < 4; ++change) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 5);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 8));
      }
      if (text.empty()) text = "x";
    }
    try {
      for (const Host& host : parse_hostfile(text, "hosts")) {
        ASSERT_FALSE(host.name.empty()) << text;
        ASSERT_NE(host.name.front(), '-') << text;
        ASSERT_EQ(host.name.find_first_of(" \t\n;$`'\"\\|&<>()"), std::string::npos) << text;
        ASSERT_GE(host.slots, 1);
        ASSERT_LE(host.slots, kMaxSlotsPerHost);
      }
      ++accepted;
    } catch (const HostfileError&) {
    }
  }
  EXPECT_GT(accepted, 100);
}

}  // namespace
}  // namespace chainmail::launch
