// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Membership's messages as bytes, and what is refused as one.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/membership/wire.h"

namespace chainmail::membership {
namespace {

WorldPtr world_of_two() {
  World world;
  world.generation = 7;
  world.members = {3, 9};
  world.cut = {0, 5, 8};
  world.base = {3};
  world.hosts = {0, 4};
  return std::make_shared<const World>(world);
}

TEST(MembershipWire, LauncherMessagesComeBack) {
  const std::vector<LauncherMessage> messages = {Wanted{4},
                                                 NewWorld{world_of_two(), std::nullopt},
                                                 NewWorld{world_of_two(), Start{12, {3}}},
                                                 Resume{7, Start{std::uint64_t{1} << 40, {3, 9}}},
                                                 Leave{2},
                                                 Save{0xffffffff}};
  for (const LauncherMessage& message : messages) {
    const LauncherWord word{message, {{0, "n1", "10.0.0.1,fe80::1"}, {4, "n2", ""}}};
    const LauncherWord read = decode_launcher_word(encode(word));
    EXPECT_EQ(read.message, message) << message.index();
    EXPECT_EQ(read.hosts, word.hosts);
  }
}

TEST(MembershipWire, MemberMessagesComeBack) {
  const std::vector<MemberMessage> messages = {
      Ready{0xfedcba9876543210}, Held{3, 5, true}, Held{3, 5, false},
      MyState{3, std::nullopt},  MyState{3, 0},    Fetched{3, 1, 7},
      Running{3, 5, 12},         Accuse{3, 9},     Saved{77}};
  for (const MemberMessage& message : messages) {
    EXPECT_EQ(decode_member_message(encode(message)), message) << message.index();
  }
}

TEST(MembershipWire, EveryShorterOrLongerTextIsRefused) {
  const std::string whole = encode(LauncherWord{NewWorld{world_of_two(), Start{12, {3}}}, {}});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THROW(static_cast<void>(decode_launcher_word(whole.substr(0, length))), SystemError)
        << length;
  }
  EXPECT_THROW(static_cast<void>(decode_launcher_word(whole + "x")), SystemError);
  EXPECT_THROW(static_cast<void>(decode_member_message("")), SystemError);
  EXPECT_THROW(static_cast<void>(decode_member_message("\x20")), SystemError);
}

TEST(MembershipWire, WorldsThatCannotBeAreRefused) {
  const auto refusal = [](const auto& spoil) {
    World world = *world_of_two();
    spoil(world);
    try {
      static_cast<void>(decode_launcher_word(
          encode(LauncherWord{NewWorld{std::make_shared<const World>(world), std::nullopt}, {}})));
    } catch (const SystemError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal([](World& world) { world.hosts.pop_back(); }), HasSubstr("1 hosts"));
  EXPECT_THAT(refusal([](World& world) { world.cut.push_back(9); }), HasSubstr("4 bounds"));
  EXPECT_THAT(refusal([](World& world) { world.cut = {0, 9, 8}; }), HasSubstr("backwards"));
}

}  // namespace
}  // namespace chainmail::membership
