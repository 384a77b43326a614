// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A hosts file that is edited while it is read: what is certain counts, the rest is named.

#include "launcher/hosts/watched_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace chainmail::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

std::vector<std::string> watched_names(const std::string& text) {
  std::vector<std::string> names;
  for (const Host& host : parse_watched_hosts(text, "F")) {
    names.push_back(host.name + ":" + std::to_string(host.slots));
  }
  return names;
}

std::string refusal_of(const std::string& text) {
  try {
    (void)parse_watched_hosts(text, "F");
  } catch (const HostsError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(WatchedHosts, AreLinesOfAHostfile) {
  EXPECT_THAT(watched_names("n1\nn2 slots=4\n"), ElementsAre("n1:1", "n2:4"));
  EXPECT_THAT(watched_names("n1\r\nn2 slots=4\r\n"), ElementsAre("n1:1", "n2:4"));
  EXPECT_THAT(watched_names("# all of them\n\nn1\n"), ElementsAre("n1:1"));
}

TEST(WatchedHosts, MayBeNone) {
  EXPECT_THAT(watched_names(""), IsEmpty());
  EXPECT_THAT(watched_names("\n \r\n"), IsEmpty());
}

TEST(WatchedHosts, EndWithALineEnd) {
  EXPECT_THAT(refusal_of("n1\nn2 slo"), StartsWith("F:2:7: the last line has no end"));
  EXPECT_THAT(refusal_of("n1"), StartsWith("F:1:3: the last line has no end"));
  EXPECT_THAT(refusal_of("n1\r\nn2\r"), StartsWith("F:2:4: the last line has no end"));
}

TEST(WatchedHosts, AreNamedOnceWithANumberOfSlots) {
  EXPECT_THAT(refusal_of("n1\nn2\nn1\n"), HasSubstr("F:3:1: host n1 is named again"));
  EXPECT_THAT(refusal_of("n1:*\n"), StartsWith("F:1:1: host n1 has '*' slots"));
  EXPECT_THAT(refusal_of("n1\n n2:*\n"), StartsWith("F:2:2: host n2 has '*' slots"));
}

TEST(WatchedHosts, PointAtWhatCannotBeRead) {
  EXPECT_THAT(refusal_of("n1\nn2 slots=many\n"), StartsWith("F:2:10: "));
  EXPECT_THAT(refusal_of("n1\n-bad\n"), StartsWith("F:2:1: "));
}

}  // namespace
}  // namespace chainmail::launch
