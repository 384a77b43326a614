// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/gradients/bucket_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace chainmail::internal {
namespace {

using Plan = std::vector<std::vector<std::size_t>>;

TEST(BucketPlan, ClosesABucketWhenItIsFull) {
  const std::vector<BucketItem> items = {
      {c10::kFloat, 10}, {c10::kFloat, 60}, {c10::kFloat, 50}, {c10::kFloat, 50}, {c10::kFloat, 1}};
  EXPECT_EQ(plan_buckets(items, {100, 100}), (Plan{{0, 1, 2}, {3, 4}}));
}

TEST(BucketPlan, TheFirstBucketIsSmall) {
  const std::vector<BucketItem> items(6, BucketItem{c10::kFloat, 10});
  EXPECT_EQ(plan_buckets(items, {40, 10}), (Plan{{0}, {1, 2, 3, 4}, {5}}));
  EXPECT_EQ(plan_buckets(items, {40, 1000}), (Plan{{0, 1, 2, 3}, {4, 5}}));
}

TEST(BucketPlan, OneBucketPerDtypeWithoutALimit) {
  const std::vector<BucketItem> items = {
      {c10::kFloat, 10}, {c10::kHalf, 10}, {c10::kFloat, 10}, {c10::kHalf, 10}, {c10::kFloat, 10}};
  EXPECT_EQ(plan_buckets(items, {0, 5}), (Plan{{1, 3}, {0, 2, 4}}));
}

TEST(BucketPlan, DtypesDoNotMixAndBucketsStandInTheOrderTheyGetReady) {
  const std::vector<BucketItem> items = {
      {c10::kFloat, 10}, {c10::kHalf, 100}, {c10::kFloat, 100}, {c10::kHalf, 10}};
  EXPECT_EQ(plan_buckets(items, {100, 100}), (Plan{{1}, {0, 2}, {3}}));
}

TEST(BucketPlan, EmptyAndHuge) {
  EXPECT_EQ(plan_buckets({}, {100, 10}), Plan{});
  const std::vector<BucketItem> items = {{c10::kFloat, 0}, {c10::kFloat, std::int64_t{1} << 40}};
  EXPECT_EQ(plan_buckets(items, {100, 10}), (Plan{{0, 1}}));
}

TEST(BucketPlan, EveryItemIsInOneBucket) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    std::vector<BucketItem> items(random() % 40);
    for (BucketItem& item : items) {
      item = {random() % 3 == 0 ? c10::kDouble : c10::kFloat,
              static_cast<std::int64_t>(random() % 50)};
    }
    const Plan plan = plan_buckets(items, {static_cast<std::int64_t>(random() % 80),
                                           static_cast<std::int64_t>(random() % 80)});
    std::vector<std::size_t> all;
    for (std::size_t b = 0; b < plan.size(); ++b) {
      EXPECT_TRUE(b == 0 || plan[b - 1].back() < plan[b].back());
      for (const std::size_t item : plan[b]) {
        EXPECT_EQ(items[item].dtype, items[plan[b].front()].dtype);
        all.push_back(item);
      }
    }
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all.size(), items.size());
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], i);
  }
}

}  // namespace
}  // namespace chainmail::internal
