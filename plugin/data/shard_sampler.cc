// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/data/shard_sampler.h>

#include <algorithm>
#include <sstream>
#include <string>

#include <chainmail/error.h>

#include "plugin/data/permutation.h"

namespace chainmail {
namespace {

constexpr std::int64_t kMostSamples = std::int64_t{1} << 31;

/// Where shard `shard`'s part of `samples` begins.
std::int64_t begin_of(std::int64_t samples, std::uint32_t shard, std::uint32_t shards) {
  // Samples of a step and shards are far below 2^31 each.
  return samples * shard / shards;
}

}  // namespace

ShardSampler::ShardSampler(std::size_t size, const ShardSamplerOptions& options)
    : size_(size), options_(options) {
  if (size == 0) throw InvalidArgument("a sampler for a dataset without samples");
  if (options.batch < 1 || options.batch >= kMostSamples) {
    throw InvalidArgument("a step of " + std::to_string(options.batch) +
                          " samples: batch, of all shards together, must be at least 1 and less "
                          "than 2^31");
  }
  if (options.ramp_steps < 0) {
    throw InvalidArgument("a learning rate that moves within " +
                          std::to_string(options.ramp_steps) +
                          " steps: ramp_steps must be at least 0");
  }
  now_.seed = options.seed;
  next_ = now_;
}

std::size_t ShardSampler::steps_per_epoch() const noexcept {
  const auto ranks = is_per_rank() ? std::max<std::int64_t>(now_.ranks, 1) : 1;
  const auto batch = static_cast<std::size_t>(options_.batch * ranks);
  return (size_ + batch - 1) / batch;
}

double ShardSampler::batch_scale() const noexcept { return scale_of(next_); }

double ShardSampler::scale_of(const ShardSamplerState& state) const noexcept {
  if (state.ranks == 0) return 1;
  const double scale = static_cast<double>(state.ranks) / static_cast<double>(state.first_ranks);
  if (state.ramp_done >= options_.ramp_steps) return scale;
  const double done =
      static_cast<double>(state.ramp_done) / static_cast<double>(options_.ramp_steps);
  return state.ramp_from + (scale - state.ramp_from) * done;
}

// Of what was committed, so that a step that is dropped leaves nothing.
void ShardSampler::begin_step(int ranks) {
  next_ = now_;
  if (!is_per_rank()) return;
  if (options_.batch * ranks >= kMostSamples) {
    throw InvalidArgument("a step of " + std::to_string(options_.batch) + " samples on each of " +
                          std::to_string(ranks) + " ranks: they must be less than 2^31 together");
  }
  if (now_.ranks != ranks) {
    if (now_.ranks == 0) next_.first_ranks = ranks;
    next_.ramp_from = scale_of(now_);
    next_.ramp_done = 0;
    next_.ranks = ranks;
  }
  if (next_.ramp_done < options_.ramp_steps) ++next_.ramp_done;
}

// Of what must be the same on all ranks besides the state.
std::string ShardSampler::describe() const {
  return std::to_string(size_) + (options_.shuffle ? " shuffled samples, " : " samples, ") +
         std::to_string(options_.batch) + " in a step" +
         (is_per_rank()
              ? " of each rank, scaled within " + std::to_string(options_.ramp_steps) + " steps"
              : "");
}

void ShardSampler::load_state(const ShardSamplerState& state) {
  if (state.epoch < 0 || state.position < 0 || state.position >= static_cast<std::int64_t>(size_)) {
    throw InvalidArgument("a sampler cannot go on in epoch " + std::to_string(state.epoch) +
                          " after " + std::to_string(state.position) + " of " +
                          std::to_string(size_) + " samples: is this another dataset?");
  }
  const bool has_ranks = state.first_ranks > 0 && state.ranks > 0 && state.ramp_from > 0;
  const bool has_none = state.first_ranks == 0 && state.ranks == 0;
  if ((!has_ranks && !has_none) || state.ramp_done < 0) {
    throw InvalidArgument("a sampler cannot go on with a batch for " + std::to_string(state.ranks) +
                          " ranks after one for " + std::to_string(state.first_ranks));
  }
  now_ = next_ = state;
  order_epoch_ = -1;
}

// Of a step that has begun; nothing where the number of ranks is that of the step before.
std::string ShardSampler::describe_ramp() const {
  if (now_.ranks == 0 || now_.ranks == next_.ranks) return {};
  std::ostringstream text;
  text << "batches of " << options_.batch * next_.ranks << " samples on " << next_.ranks
       << " ranks, after " << options_.batch * now_.ranks << " on " << now_.ranks
       << "; batch_scale() moves from " << next_.ramp_from << " to "
       << static_cast<double>(next_.ranks) / static_cast<double>(next_.first_ranks) << " within "
       << std::max<std::int64_t>(options_.ramp_steps, 1) << " steps";
  return text.str();
}

std::int64_t ShardSampler::next_size() const noexcept {
  const std::int64_t batch = options_.batch * (is_per_rank() ? next_.ranks : 1);
  return std::min(batch, static_cast<std::int64_t>(size_) - now_.position);
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
  next_.position += next_size();
  now_ = next_;
  if (now_.position < static_cast<std::int64_t>(size_)) return;
  ++now_.epoch;
  now_.position = 0;
  next_ = now_;
}

}  // namespace chainmail
