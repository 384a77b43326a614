// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Every fuzz target over its seeds and mutations of them: a short form of
// tests/soak/launcher/fuzz.sh that needs no clang.

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <set>

#include "tests/launcher/fuzz/fuzz_targets.h"

namespace chainmail::launch {
namespace {

// Numbers where something may not fit any more.
constexpr std::array<const char*, 5> kEdges = {"0", "-1", "1024", "4294967295",
                                               "99999999999999999999"};

// A few bytes changed, taken away, or copied from another seed.
std::string mutated(std::string text, const std::vector<std::string>& seeds, std::mt19937& random) {
  for (std::size_t change = 1 + random() % 4; change > 0; --change) {
    const std::size_t at = text.empty() ? 0 : random() % text.size();
    const std::string& other = seeds[random() % seeds.size()];
    switch (random() % 4) {
      case 0:
        if (!text.empty()) text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, random() % 6);
        break;
      case 2:
        if (!other.empty()) text.insert(at, other.substr(random() % other.size(), random() % 12));
        break;
      default:
        text.insert(at, kEdges[random() % kEdges.size()]);
    }
  }
  return text;
}

TEST(Fuzz, EveryTargetKeepsItsPromisesOverSeedsAndMutations) {
  std::mt19937 random(20260817);
  std::set<std::string> names;
  for (const FuzzTarget& target : all_fuzz_targets(CHAINMAIL_HOSTS_CORPUS)) {
    SCOPED_TRACE(target.name);
    EXPECT_TRUE(names.insert(target.name).second) << "twice";
    ASSERT_FALSE(target.seeds.empty());
    for (const std::string& seed : target.seeds) target.run(seed);
    for (int round = 0; round < 2000; ++round) {
      const std::string& seed = target.seeds[random() % target.seeds.size()];
      target.run(mutated(seed, target.seeds, random));
    }
  }
  EXPECT_GE(names.size(), 22U);
}

// A target that cannot fail would prove nothing.
TEST(FuzzDeathTest, ABrokenPromiseEndsTheProgram) {
  EXPECT_DEATH(promise(false, "two and two"), "broken promise: two and two");
}

}  // namespace
}  // namespace chainmail::launch
