// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/channel_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace chainmail::internal {
namespace {

// One channel, two passes.
ChannelStatistics statistics_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  ChannelStatistics result{count, {0}, {0}};
  if (values.empty()) return result;
  result.mean[0] = std::accumulate(values.begin(), values.end(), 0.0) / count;
  for (const double value : values) {
    result.variance[0] += (value - result.mean[0]) * (value - result.mean[0]) / count;
  }
  return result;
}

std::vector<double> joined(const std::vector<std::vector<double>>& parts) {
  std::vector<double> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

TEST(ChannelStatistics, UnevenAndEmptyPartsGiveTheStatisticsOfTheWhole) {
  for (const double center : {0.0, 1000.0, -1e8}) {
    std::mt19937 generator(7);
    std::normal_distribution<double> spread(center, 1.0);
    std::vector<std::vector<double>> parts(5);
    for (std::size_t p = 0; p < parts.size(); ++p) {
      parts[p].resize(p == 2 ? 0 : 1 + 17 * p);
      for (double& value : parts[p]) value = spread(generator) + static_cast<double>(p);
    }
    std::vector<std::vector<double>> records;
    for (const auto& part : parts) records.push_back(to_record(statistics_of(part)));
    const ChannelStatistics merged = merge_records(joined(records), 1);
    const ChannelStatistics whole = statistics_of(joined(parts));
    EXPECT_EQ(merged.count, whole.count);
    EXPECT_NEAR(merged.mean[0], whole.mean[0], 1e-12 * (1 + std::abs(center)));
    EXPECT_NEAR(merged.variance[0], whole.variance[0], 1e-7) << "around " << center;
  }
}

TEST(ChannelStatistics, ChannelsStayApart) {
  // Two ranks, two channels: 2 and 6 values.
  const std::vector<double> records{2, 1, 10, 0, 4, 6, 5, 10, 0, 8};
  const ChannelStatistics merged = merge_records(records, 2);
  EXPECT_EQ(merged.count, 8);
  EXPECT_DOUBLE_EQ(merged.mean[0], 4);
  EXPECT_DOUBLE_EQ(merged.mean[1], 10);
  EXPECT_DOUBLE_EQ(merged.variance[0], (2 * 9 + 6 * 1) / 8.0);
  EXPECT_DOUBLE_EQ(merged.variance[1], (2 * 4 + 6 * 8) / 8.0);
}

TEST(ChannelStatistics, WhatAnEmptyRankSaysDoesNotMatter) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const ChannelStatistics merged = merge_records(std::vector<double>{0, nan, nan, 3, 2, 1}, 1);
  EXPECT_EQ(merged.count, 3);
  EXPECT_EQ(merged.mean[0], 2);
  EXPECT_EQ(merged.variance[0], 1);
  const ChannelStatistics none = merge_records(std::vector<double>{0, nan, nan}, 1);
  EXPECT_EQ(none.count, 0);
  EXPECT_EQ(none.mean[0], 0);
}

}  // namespace
}  // namespace chainmail::internal
