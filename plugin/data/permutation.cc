// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/data/permutation.h"

#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail::internal {

namespace {

// Uniform in [0, bound). Written out, since std::uniform_int_distribution differs between standard
// libraries and all ranks must draw the same.
std::uint64_t draw_below(std::mt19937_64& generator, std::uint64_t bound) {
  const std::uint64_t limit = std::numeric_limits<std::uint64_t>::max() / bound * bound;
  std::uint64_t value = generator();
  while (value >= limit) value = generator();
  return value % bound;
}

}  // namespace

std::uint64_t derive_seed(std::uint64_t seed, std::uint64_t number) noexcept {
  std::uint64_t x = seed + 0x9e3779b97f4a7c15ULL * (number + 1);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

std::vector<std::int64_t> permutation(std::int64_t size, std::uint64_t seed) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  std::mt19937_64 generator(seed);
  for (std::size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[draw_below(generator, i)]);
  }
  return order;
}

void check_equal_size(const char* operation, std::int64_t size, Communicator& communicator) {
  const std::vector<std::int64_t> sizes = communicator.allgather_obj(size);
  for (std::size_t r = 1; r < sizes.size(); ++r) {
    if (sizes[r] != sizes.front()) {
      fail_on_all_ranks(communicator, std::string(operation) + ": the dataset has " +
                                          std::to_string(sizes.front()) +
                                          " samples on rank 0 and " + std::to_string(sizes[r]) +
                                          " on rank " + std::to_string(r) +
                                          "; every rank must pass the whole dataset");
    }
  }
}

}  // namespace chainmail::internal
