// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

#include <chainmail/dataset.h>

#include "plugin/data/permutation.h"
#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail {

namespace {

// floor(size * rank / ranks) without an overflow of the product.
std::int64_t share(std::int64_t size, std::int64_t rank, std::int64_t ranks) {
  return size / ranks * rank + size % ranks * rank / ranks;
}

}  // namespace

IndexRange index_range(std::int64_t size, int rank, int ranks, bool force_equal_length) {
  if (size < 0 || ranks < 1 || rank < 0 || rank >= ranks) {
    throw InvalidArgument("index_range: no range of " + std::to_string(size) +
                          " samples for rank " + std::to_string(rank) + " of " +
                          std::to_string(ranks));
  }
  if (force_equal_length) {
    const std::int64_t begin = share(size, rank, ranks);
    const std::int64_t length = size / ranks + (size % ranks != 0 ? 1 : 0);
    return {begin, begin + length, share(size, rank + 1, ranks)};
  }
  const std::int64_t longer = size % ranks;
  const std::int64_t begin = size / ranks * rank + std::min<std::int64_t>(rank, longer);
  const std::int64_t end = begin + size / ranks + (rank < longer ? 1 : 0);
  return {begin, end, end};
}

IndexRange scatter_index(std::int64_t size, const std::shared_ptr<Communicator>& communicator,
                         const ScatterOptions& options) {
  internal::require_communicator(communicator, "scatter_index");
  communicator->impl().check_root(options.root, "scatter_index");
  const auto [size_of_all, is_equal] =
      communicator->bcast_obj(std::pair(size, options.force_equal_length), options.root);
  return index_range(size_of_all, communicator->rank(), communicator->size(), is_equal);
}

ScatteredIndices scatter_indices(std::int64_t size,
                                 const std::shared_ptr<Communicator>& communicator,
                                 const ScatterOptions& options) {
  internal::require_communicator(communicator, "scatter_dataset");
  communicator->impl().check_root(options.root, "scatter_dataset");
  internal::check_equal_size("scatter_dataset", size, *communicator);
  std::optional<std::uint64_t> own_seed;  // of a shuffle, unless there is none
  if (options.shuffle) own_seed = options.seed ? *options.seed : std::random_device{}();
  const auto [seed, is_equal] =
      communicator->bcast_obj(std::pair(own_seed, options.force_equal_length), options.root);
  const IndexRange range = index_range(size, communicator->rank(), communicator->size(), is_equal);
  ScatteredIndices result;
  result.unique_count = static_cast<std::size_t>(range.unique_end - range.begin);
  if (seed) {
    const std::vector<std::int64_t> order = internal::permutation(size, *seed);
    result.indices.assign(order.begin() + range.begin, order.begin() + range.end);
  } else {
    result.indices.resize(static_cast<std::size_t>(range.end - range.begin));
    std::iota(result.indices.begin(), result.indices.end(), range.begin);
  }
  return result;
}

}  // namespace chainmail
