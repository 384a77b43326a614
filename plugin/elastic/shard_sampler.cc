// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <algorithm>
#include <string>

#include <chainmail/elastic.h>

#include "plugin/data/permutation.h"

namespace chainmail {
namespace {

/// Where shard `shard`'s part of `samples` begins.
std::int64_t begin_of(std::int64_t samples, std::uint32_t shard, std::uint32_t shards) {
  // Samples of a step and shards are far below 2^31 each.
  return samples * shard / shards;
}

}  // namespace

ShardSampler::ShardSampler(std::size_t size, const ShardSamplerOptions& options)
    : size_(size), options_(options) {
  if (size == 0) throw InvalidArgument("a sampler for a dataset without samples");
  if (options.batch < 1 || options.batch >= (std::int64_t{1} << 31)) {
    throw InvalidArgument("a step of " + std::to_string(options.batch) +
                          " samples: batch, of all shards together, must be at least 1 and less "
                          "than 2^31");
  }
  now_.seed = options.seed;
}

std::size_t ShardSampler::steps_per_epoch() const noexcept {
  const auto batch = static_cast<std::size_t>(options_.batch);
  return (size_ + batch - 1) / batch;
}

// Of what must be the same on all ranks besides the state.
std::string ShardSampler::describe() const {
  return std::to_string(size_) + (options_.shuffle ? " shuffled samples, " : " samples, ") +
         std::to_string(options_.batch) + " in a step";
}

void ShardSampler::load_state(const SamplerState& state) {
  if (state.epoch < 0 || state.position < 0 || state.position >= static_cast<std::int64_t>(size_)) {
    throw InvalidArgument("a sampler cannot go on in epoch " + std::to_string(state.epoch) +
                          " after " + std::to_string(state.position) + " of " +
                          std::to_string(size_) + " samples: is this another dataset?");
  }
  now_ = state;
  order_epoch_ = -1;
}

std::int64_t ShardSampler::next_size() const noexcept {
  return std::min(options_.batch, static_cast<std::int64_t>(size_) - now_.position);
}

std::int64_t ShardSampler::part_size(std::uint32_t shard, std::uint32_t shards) const noexcept {
  const std::int64_t samples = next_size();
  return begin_of(samples, shard + 1, shards) - begin_of(samples, shard, shards);
}

std::vector<std::size_t> ShardSampler::part(std::uint32_t shard, std::uint32_t shards) {
  if (options_.shuffle && order_epoch_ != now_.epoch) {
    order_ = internal::permutation(
        static_cast<std::int64_t>(size_),
        internal::derive_seed(now_.seed, static_cast<std::uint64_t>(now_.epoch)));
    order_epoch_ = now_.epoch;
  }
  const std::int64_t begin = now_.position + begin_of(next_size(), shard, shards);
  std::vector<std::size_t> indices;
  for (std::int64_t i = begin; i < begin + part_size(shard, shards); ++i) {
    indices.push_back(
        static_cast<std::size_t>(options_.shuffle ? order_[static_cast<std::size_t>(i)] : i));
  }
  return indices;
}

void ShardSampler::advance() noexcept {
  now_.position += next_size();
  if (now_.position < static_cast<std::int64_t>(size_)) return;
  ++now_.epoch;
  now_.position = 0;
}

}  // namespace chainmail
