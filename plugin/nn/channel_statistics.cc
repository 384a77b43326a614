// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/nn/channel_statistics.h"

namespace chainmail::internal {

std::vector<double> to_record(const ChannelStatistics& statistics) {
  std::vector<double> record{statistics.count};
  record.insert(record.end(), statistics.mean.begin(), statistics.mean.end());
  record.insert(record.end(), statistics.variance.begin(), statistics.variance.end());
  return record;
}

ChannelStatistics merge_records(std::span<const double> records, std::size_t channels) {
  const std::size_t length = 1 + 2 * channels;
  ChannelStatistics all{0, std::vector<double>(channels), std::vector<double>(channels)};
  for (std::size_t begin = 0; begin < records.size(); begin += length) all.count += records[begin];
  const auto add_up = [&](std::vector<double>& sums, const auto& value_of) {
    for (std::size_t begin = 0; begin < records.size(); begin += length) {
      const double weight = records[begin] / all.count;
      for (std::size_t c = 0; weight > 0 && c < channels; ++c) {
        sums[c] += weight * value_of(records.subspan(begin + 1, 2 * channels), c);
      }
    }
  };
  if (all.count > 0) {
    add_up(all.mean, [](std::span<const double> rank, std::size_t c) { return rank[c]; });
    add_up(all.variance, [&](std::span<const double> rank, std::size_t c) {
      const double distance = rank[c] - all.mean[c];
      return rank[channels + c] + distance * distance;
    });
  }
  return all;
}

}  // namespace chainmail::internal
