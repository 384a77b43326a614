// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which samples a step's shards take, seen through steps of one rank; and what may not be asked
// for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include <chainmail/data/shard_sampler.h>
#include <chainmail/error.h>

namespace chainmail {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(ShardSampler, CountsSteps) {
  EXPECT_EQ(ShardSampler(1, {.batch = 1}).steps_per_epoch(), 1U);
  EXPECT_EQ(ShardSampler(75, {.batch = 36}).steps_per_epoch(), 3U);
  EXPECT_EQ(ShardSampler(72, {.batch = 36}).steps_per_epoch(), 2U);
  EXPECT_EQ(ShardSampler(3, {.batch = 36}).steps_per_epoch(), 1U);
}

TEST(ShardSampler, RefusesWhatHasNoSteps) {
  EXPECT_THAT([] { ShardSampler(0, {.batch = 8}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("without samples")));
  for (const std::int64_t batch : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{1} << 31,
                                   std::numeric_limits<std::int64_t>::max()}) {
    EXPECT_THAT([&] { ShardSampler(10, {.batch = batch}); },
                ThrowsMessage<InvalidArgument>(HasSubstr(std::to_string(batch))));
  }
}

TEST(ShardSampler, CountsStepsOfThoseWhoTookTheLastOne) {
  ShardSampler samples(75, {.batch = 6, .policy = BatchPolicy::kPerRank});
  EXPECT_EQ(samples.steps_per_epoch(), 13U);
  samples.load_state({.first_ranks = 2, .ranks = 3});
  EXPECT_EQ(samples.steps_per_epoch(), 5U);
}

TEST(ShardSampler, RefusesRampsThatCannotBe) {
  EXPECT_THAT([] { ShardSampler(9, {.batch = 1, .ramp_steps = -1}); },
              ThrowsMessage<InvalidArgument>(HasSubstr("within -1 steps")));
  ShardSampler samples(9, {.batch = 1, .policy = BatchPolicy::kPerRank});
  for (const ShardSamplerState& state :
       {ShardSamplerState{.first_ranks = 2}, ShardSamplerState{.ranks = 2},
        ShardSamplerState{.first_ranks = -1, .ranks = 2},
        ShardSamplerState{.first_ranks = 2, .ranks = 2, .ramp_from = 0},
        ShardSamplerState{.first_ranks = 2, .ranks = 2, .ramp_done = -1}}) {
    EXPECT_THAT([&] { samples.load_state(state); },
                ThrowsMessage<InvalidArgument>(HasSubstr("cannot go on with a batch")));
  }
}

TEST(ShardSampler, GoesOnWhereItWas) {
  ShardSampler samples(10, {.batch = 4, .seed = 7});
  samples.load_state({.seed = 9, .epoch = 3, .position = 8});
  EXPECT_EQ(samples.state().seed, 9U);
  EXPECT_EQ(samples.state().epoch, 3);
  EXPECT_EQ(samples.state().position, 8);
}

TEST(ShardSampler, RefusesPositionsOutsideOfTheDataset) {
  ShardSampler samples(10, {.batch = 4});
  for (const ShardSamplerState& state : {ShardSamplerState{.epoch = 0, .position = 10},
                                         ShardSamplerState{.epoch = 0, .position = -1},
                                         ShardSamplerState{.epoch = -1, .position = 0}}) {
    EXPECT_THAT([&] { samples.load_state(state); },
                ThrowsMessage<InvalidArgument>(HasSubstr("another dataset")));
  }
  EXPECT_EQ(samples.state().position, 0);
}

}  // namespace
}  // namespace chainmail
