// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which gradients travel together. The rules are those of PyTorch's DistributedDataParallel (Li et
// al., VLDB 2020): buckets in the order in which backward finishes gradients, the first one small,
// so that the wire has work early.
//
// Pure functions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <c10/core/ScalarType.h>

namespace chainmail::internal {

/// One gradient, in the order in which backward finishes them.
struct BucketItem {
  c10::ScalarType dtype = c10::kFloat;
  std::int64_t bytes = 0;
};

struct BucketLimits {
  std::int64_t bucket_bytes = 0;        ///< a bucket is closed when it holds this; 0: one per dtype
  std::int64_t first_bucket_bytes = 0;  ///< of the bucket that is ready first
};

/// Positions in `items`, grouped; a bucket has one dtype, and buckets stand in the order of their
/// last member, which is the order in which they become ready. Every item is in one bucket.
[[nodiscard]] std::vector<std::vector<std::size_t>> plan_buckets(std::span<const BucketItem> items,
                                                                 const BucketLimits& limits);

}  // namespace chainmail::internal
