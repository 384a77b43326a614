// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/hosts/hostfile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>

namespace chainmail::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// "name*slots/max user port" of each host, so that a whole file compares at once.
std::string summary(const std::vector<Host>& hosts) {
  std::string out;
  for (const Host& host : hosts) {
    if (!out.empty()) out += ", ";
    if (!host.user.empty()) out += host.user + "@";
    out += host.name + "*" + std::to_string(host.slots);
    if (host.max_slots) out += "/" + std::to_string(*host.max_slots);
    if (host.port) out += " port " + std::to_string(*host.port);
  }
  return out;
}

std::string read(std::string_view text) { return summary(parse_hostfile(text, "hosts")); }
std::string read_list(std::string_view text) { return summary(parse_host_list(text, "-H")); }

struct GoodCase {
  const char* text;
  const char* hosts;
};

TEST(Hostfile, GoodCorpus) {
  const GoodCase cases[] = {
      {"node01 slots=4\n", "node01*4"},
      {"node01", "node01*1"},
      {"node01\n", "node01*1"},
      {"node01 slots=4 max_slots=8\n", "node01*4/8"},
      {"node01 slots=4 max-slots=8", "node01*4/8"},
      {"node01 slots=2 slots_max=8", "node01*2/8"},
      {"node01 cpu=4", "node01*4"},
      {"node01 count=4", "node01*4"},
      {"node01 slots = 4", "node01*4"},
      {"node01 slots= 4 port =2222", "node01*4 port 2222"},
      {"node01:4", "node01*4"},
      {"node01:4 port=2222", "node01*4 port 2222"},
      {"bob@node02 slots=2", "bob@node02*2"},
      {"node02 slots=2 user=bob", "bob@node02*2"},
      {"node02 username=bob", "bob@node02*1"},
      {"a\nb\na\n", "a*2, b*1"},
      {"a:2\na slots=3\n", "a*5"},
      {"a slots=1 max_slots=2\na slots=1 max_slots=2\n", "a*2/4"},
      {"# all of them\nn1 slots=2 # first\nn2 slots=2 // second\n\n   \n", "n1*2, n2*2"},
      {"n1#comment", "n1*1"},
      {"n1//comment", "n1*1"},
      {"n1 slots=2\r\nn2 slots=2\r\n", "n1*2, n2*2"},
      {"\xef\xbb\xbfn1\n", "n1*1"},
      {"\tn1\tslots=2\t\n", "n1*2"},
      {"10.0.0.4\n10.0.0.5:3\n", "10.0.0.4*1, 10.0.0.5*3"},
      {"[::1]:2", "::1*2"},
      {"[fd00::5] slots=2", "fd00::5*2"},
      {"[fd00::5]", "fd00::5*1"},
      {"fd00::5 slots=2", "fd00::5*2"},
      {"1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8*1"},
      {"[fe80::1%eth0]:2", "fe80::1%eth0*2"},
      {"node-a.x.example.com slots=2", "node-a.x.example.com*2"},
      {"queue1-dy-c5-1\nqueue1-dy-c5-2", "queue1-dy-c5-1*1, queue1-dy-c5-2*1"},
      {"n1 slots=1024", "n1*1024"},
  };
  for (const GoodCase& good : cases) EXPECT_EQ(read(good.text), good.hosts) << good.text;
}

struct BadCase {
  const char* text;
  std::size_t line;
  std::size_t column;
  const char* reason;
};

TEST(Hostfile, BadCorpusNamesLineColumnAndReason) {
  const BadCase cases[] = {
      {"", 1, 1, "no host"},
      {"# nothing\n\n", 2, 1, "no host"},
      {"n1 slots=0", 1, 10, "'0'"},
      {"n1 slots=-1", 1, 10, "'-1'"},
      {"n1 slots=1025", 1, 10, "1 to 1024"},
      {"n1 slots=99999999999999999999", 1, 10, "1 to 1024"},
      {"n1 slots=two", 1, 10, "whole number"},
      {"n1 slots=2x", 1, 10, "whole number"},
      {"n1 slots=", 1, 9, "no value"},
      {"n1 slots", 1, 4, "name=value"},
      {"n1 4", 1, 4, "name=value"},
      {"n1 n2", 1, 4, "name=value"},
      {"n1 =4", 1, 4, "name=value"},
      {"=4", 1, 1, "no host name"},
      {"n1 gpu=1", 1, 4, "unknown word 'gpu'"},
      {"n1 slots=2 slots=2", 1, 12, "twice"},
      {"n1:2 slots=2", 1, 6, "twice"},
      {"n1 port=2 port=3", 1, 11, "twice"},
      {"bob@n1 user=eve", 1, 8, "twice"},
      {"n1 slots=4 max_slots=2", 1, 1, "max_slots=2"},
      {"ok\nn1 port=0", 2, 9, "1 to 65535"},
      {"n1 port=65536", 1, 9, "1 to 65535"},
      {"ok\nok2\n-oProxyCommand=x", 3, 1, "begins with '-'"},
      {"-l@n1", 1, 1, "begins with '-'"},
      {"bob@-n1", 1, 5, "begins with '-'"},
      {"bob@", 1, 5, "no host name"},
      {"@n1", 1, 1, "empty user"},
      {"a@b@c", 1, 4, "'@'"},
      {"n1:", 1, 4, "whole number"},
      {":4", 1, 1, "empty host name"},
      {"n1:*", 1, 4, "not supported"},
      {"10.0.0.3:2222", 1, 10, "port=n"},
      {"::1:2", 1, 1, "[address]"},
      {"fd00::1:5 slots=2", 1, 1, "[address]"},
      {"a:b:c", 1, 1, "neither"},
      {"[::1", 1, 1, "without ']'"},
      {"[node1]:2", 1, 2, "not an IPv6"},
      {"[::1]2", 1, 6, "after ']'"},
      {"[::1]:", 1, 7, "whole number"},
      {"[fe80::1%-x]", 1, 10, "begins with '-'"},
      {"n1,n2", 1, 1, "one host per line"},
      {"^n1", 1, 1, "not supported"},
      {"+n0", 1, 1, "not supported"},
      {"n1\n/* n2 */", 2, 1, "not supported"},
      {"n;1", 1, 2, "';'"},
      {"n$(x)", 1, 2, "'$'"},
      {"n1\0", 1, 1, nullptr},
      {"n\xc3\xb6", 1, 2, "byte 195"},
      {"n1 slots=1\n\x1b[31m", 2, 1, "byte 27"},
      {"n1 user=bob\nn1 user=eve", 2, 1, "another user"},
      {"n1\nn1 port=23", 2, 1, "another user or port"},
      {"n1 slots=1000\nn1 slots=1000", 2, 1, "2000 slots"},
      {"rank 0=node01 slot=0:1", 1, 6, "unknown word"},
  };
  for (const BadCase& bad : cases) {
    if (bad.reason == nullptr) continue;
    try {
      const std::string hosts = read(bad.text);
      ADD_FAILURE() << "accepted: " << bad.text << " as " << hosts;
    } catch (const HostfileError& error) {
      EXPECT_EQ(error.line(), bad.line) << bad.text << ": " << error.what();
      EXPECT_EQ(error.column(), bad.column) << bad.text << ": " << error.what();
      EXPECT_THAT(error.what(), HasSubstr(bad.reason)) << bad.text;
      EXPECT_THAT(error.what(), StartsWith("hosts:" + std::to_string(bad.line) + ":"));
    }
  }
}

TEST(Hostfile, WrittenSlotsAreToldFromTheOneThatIsAssumed) {
  const auto hosts = parse_hostfile("a\nb slots=1\nc:1\nd\nd\n[::1]\n", "hosts");
  std::string written;
  for (const Host& host : hosts) written += host.has_slots ? "y" : "n";
  EXPECT_EQ(written, "nyyyn");
}

TEST(Hostfile, ZeroByteIsRefused) {
  try {
    (void)read(std::string_view("n1\0", 3));
    FAIL() << "accepted";
  } catch (const HostfileError& error) {
    EXPECT_EQ(error.column(), 3U);
  }
}

TEST(Hostfile, MessagesShowNoControlCharacters) {
  try {
    (void)read_list("n1,\x1b[2Jn2");
    FAIL() << "accepted";
  } catch (const HostfileError& error) {
    EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos);
  }
}

TEST(HostList, GoodForms) {
  EXPECT_EQ(read_list("h1:4,h2:4"), "h1*4, h2*4");
  EXPECT_EQ(read_list("h1,h1,h2"), "h1*2, h2*1");
  EXPECT_EQ(read_list("user@h1:2,[fd00::5]:2"), "user@h1*2, fd00::5*2");
  EXPECT_EQ(read_list("localhost"), "localhost*1");
}

TEST(HostList, BadFormsNameTheColumn) {
  const BadCase cases[] = {
      {"h1,,h2", 1, 4, "empty host name"},
      {"", 1, 1, "empty host name"},
      {"h1,", 1, 4, "empty host name"},
      {"h1:4,h2:x", 1, 9, "whole number"},
      {"h1, h2", 1, 4, "' '"},
      {"h1,-v", 1, 4, "begins with '-'"},
  };
  for (const BadCase& bad : cases) {
    try {
      (void)read_list(bad.text);
      ADD_FAILURE() << "accepted: " << bad.text;
    } catch (const HostfileError& error) {
      EXPECT_EQ(error.column(), bad.column) << bad.text << ": " << error.what();
      EXPECT_THAT(error.what(), HasSubstr(bad.reason)) << bad.text;
    }
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
