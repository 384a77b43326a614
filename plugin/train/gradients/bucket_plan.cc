// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/gradients/bucket_plan.h"

#include <algorithm>
#include <utility>

namespace chainmail::internal {

std::vector<std::vector<std::size_t>> plan_buckets(std::span<const BucketItem> items,
                                                   const BucketLimits& limits) {
  struct Open {
    c10::ScalarType dtype;
    std::int64_t bytes = 0;
    std::vector<std::size_t> members;
  };
  std::vector<Open> open;
  std::vector<std::vector<std::size_t>> closed;
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto bucket = std::find_if(open.begin(), open.end(),
                               [&](const Open& one) { return one.dtype == items[i].dtype; });
    if (bucket == open.end()) {
      bucket = open.insert(open.end(), Open{items[i].dtype, 0, {}});
    }
    bucket->bytes += items[i].bytes;
    bucket->members.push_back(i);
    const std::int64_t limit = closed.empty()
                                   ? std::min(limits.first_bucket_bytes, limits.bucket_bytes)
                                   : limits.bucket_bytes;
    if (limits.bucket_bytes > 0 && bucket->bytes >= limit) {
      closed.push_back(std::move(bucket->members));
      open.erase(bucket);
    }
  }
  for (Open& rest : open) closed.push_back(std::move(rest.members));
  std::sort(closed.begin(), closed.end(),
            [](const auto& a, const auto& b) { return a.back() < b.back(); });
  return closed;
}

}  // namespace chainmail::internal
