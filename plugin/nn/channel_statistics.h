// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Mean and variance of each channel over the samples of all ranks.
//
// Pure functions over numbers, without torch.

#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace chainmail::internal {

struct ChannelStatistics {
  double count = 0;              ///< values per channel
  std::vector<double> mean;      ///< one per channel
  std::vector<double> variance;  ///< biased: divided by count
};

/// What a rank sends: the count, then the means, then the variances.
[[nodiscard]] std::vector<double> to_record(const ChannelStatistics& statistics);

/// Merges the records of all ranks, one after another in `records`, as Chan, Golub and LeVeque
/// (1979) do: by the distances of the ranks' means from the common one. E[x^2] - E[x]^2, which
/// ChainerMN took, has no digits left where the mean is large against the spread. Ranks without
/// values count nothing, whatever their record holds.
[[nodiscard]] ChannelStatistics merge_records(std::span<const double> records,
                                              std::size_t channels);

}  // namespace chainmail::internal
