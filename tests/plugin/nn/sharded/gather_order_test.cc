// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "plugin/nn/sharded/gathers/gather_order.h"

namespace chainmail::internal {
namespace {

using Events = std::vector<GatherEvent>;

Events walk(Pass pass, const std::vector<std::uint64_t>& units) {
  Events events;
  for (const std::uint64_t unit : units) events.push_back({unit, pass});
  return events;
}

Events operator+(Events a, const Events& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

struct Guesses {
  int right = 0;
  int wrong = 0;
  int none = 0;
};

// Of what follows each event of a step that is run `steps` times, in the last of them.
Guesses guesses_of(const Events& step, int steps) {
  GatherOrder order;
  Guesses guesses;
  for (int s = 0; s < steps; ++s) {
    guesses = {};
    for (std::size_t i = 0; i < step.size(); ++i) {
      const std::optional<GatherEvent> guess = order.next_after(step[i]);
      const GatherEvent& next = step[(i + 1) % step.size()];
      ++(!guess ? guesses.none : *guess == next ? guesses.right : guesses.wrong);
    }
  }
  return guesses;
}

const Events kStep = walk(Pass::kForward, {0, 1, 2, 3}) + walk(Pass::kBackward, {3, 2, 1, 0});

TEST(GatherOrder, KnowsNothingAtFirst) { EXPECT_EQ(guesses_of(kStep, 1).none, 8); }

// Not from forward to backward, where nothing needs to be fetched ahead, nor back, where the
// parameters change.
TEST(GatherOrder, KnowsAllThatLiesInsideAPassAfterOneStep) {
  const Guesses guesses = guesses_of(kStep, 3);
  EXPECT_EQ(guesses.right, 6);
  EXPECT_EQ(guesses.wrong, 0);
}

TEST(GatherOrder, DoesNotGoOnFromTheLastUnitToTheFirst) {
  const Guesses guesses = guesses_of(walk(Pass::kForward, {0, 1, 2}), 5);
  EXPECT_EQ(guesses.right, 2);
  EXPECT_EQ(guesses.none, 1);
}

TEST(GatherOrder, IsNotWrongAboutAUnitThatComesOften) {
  EXPECT_EQ(guesses_of(walk(Pass::kForward, {0, 1, 0, 2}), 6).wrong, 0);
  EXPECT_EQ(guesses_of(walk(Pass::kForward, {0, 0, 0, 0, 0, 1}), 6).wrong, 0);
}

TEST(GatherOrder, GivesUpWhereTheOrderChanges) {
  GatherOrder order;
  int wrong = 0;
  for (int step = 0; step < 20; ++step) {
    const std::uint64_t next = step % 2 == 0 ? 1 : 2;
    (void)order.next_after({0, Pass::kBackward});
    const auto guess = order.next_after({0, Pass::kForward});
    if (guess && guess->unit != next) ++wrong;
    (void)order.next_after({next, Pass::kForward});
  }
  EXPECT_LE(wrong, 2);
}

TEST(GatherOrder, ForgetsEverything) {
  GatherOrder order;
  for (int step = 0; step < 3; ++step) {
    for (const GatherEvent& event : kStep) (void)order.next_after(event);
  }
  order.forget();
  EXPECT_FALSE(order.next_after(kStep.front()));
}

}  // namespace
}  // namespace chainmail::internal
