// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/data/sampler.h>

#include <algorithm>
#include <string>
#include <utility>

#include <torch/serialize/archive.h>

#include <chainmail/dataset.h>

#include "plugin/data/permutation.h"

namespace chainmail {

struct MultiNodeSampler::Impl {
  std::int64_t size = 0;
  int rank = 0;
  int ranks = 1;
  bool shuffle = true;
  bool force_equal_length = true;
  SamplerState now;
  bool has_taken = false;           ///< since reset() or load_state()
  std::vector<std::int64_t> order;  ///< of this epoch, once it is needed

  // Of what the next step takes when `left` samples are left, this rank's share.
  IndexRange share_of(std::int64_t left, std::int64_t batch_size) const {
    if (left / ranks >= batch_size) {
      return {batch_size * rank, batch_size * (rank + 1), batch_size * (rank + 1)};
    }
    return index_range(left, rank, ranks, force_equal_length);
  }
};

MultiNodeSampler::MultiNodeSampler(std::size_t size, int rank, int ranks,
                                   const SamplerOptions& options)
    : impl_(std::make_shared<Impl>()) {
  if (ranks < 1 || rank < 0 || rank >= ranks) {
    throw InvalidArgument("a sampler for rank " + std::to_string(rank) + " of " +
                          std::to_string(ranks));
  }
  impl_->size = static_cast<std::int64_t>(size);
  impl_->rank = rank;
  impl_->ranks = ranks;
  impl_->shuffle = options.shuffle;
  impl_->force_equal_length = options.force_equal_length;
  impl_->now.seed = options.seed;
}

void MultiNodeSampler::reset(std::optional<std::size_t> new_size) {
  if (impl_->has_taken) {
    ++impl_->now.epoch;
    impl_->now.position = 0;
    impl_->order.clear();
    impl_->has_taken = false;
  }
  if (new_size && static_cast<std::int64_t>(*new_size) != impl_->size) {
    impl_->size = static_cast<std::int64_t>(*new_size);
    impl_->now.position = 0;
    impl_->order.clear();
  }
}

std::optional<std::vector<std::size_t>> MultiNodeSampler::next(std::size_t batch_size) {
  Impl& impl = *impl_;
  if (batch_size == 0) throw InvalidArgument("a batch of 0 samples");
  const std::int64_t begin = impl.now.position;
  const std::int64_t left = impl.size - begin;
  impl.has_taken = true;
  if (left <= 0) return std::nullopt;
  if (impl.shuffle && impl.order.empty()) {
    impl.order = internal::permutation(
        impl.size,
        internal::derive_seed(impl.now.seed, static_cast<std::uint64_t>(impl.now.epoch)));
  }
  const auto batch = static_cast<std::int64_t>(std::min<std::size_t>(batch_size, 1U << 30));
  const IndexRange share = impl.share_of(left, batch);
  impl.now.position = begin + (left / impl.ranks >= batch ? batch * impl.ranks : left);
  std::vector<std::size_t> indices;
  for (std::int64_t i = begin + share.begin; i < begin + share.end; ++i) {
    indices.push_back(
        static_cast<std::size_t>(impl.shuffle ? impl.order[static_cast<std::size_t>(i)] : i));
  }
  return indices.empty() ? std::nullopt : std::optional(std::move(indices));
}

SamplerState MultiNodeSampler::state() const {
  SamplerState state = impl_->now;
  if (impl_->has_taken && state.position >= impl_->size) {
    ++state.epoch;  // an epoch that is over is one that is done
    state.position = 0;
  }
  return state;
}

void MultiNodeSampler::load_state(const SamplerState& state) {
  if (state.epoch < 0 || state.position < 0 || state.position > impl_->size) {
    throw InvalidArgument("a sampler cannot go on in epoch " + std::to_string(state.epoch) +
                          " after " + std::to_string(state.position) + " of " +
                          std::to_string(impl_->size) + " samples: is this another dataset?");
  }
  impl_->now = state;
  impl_->order.clear();
  impl_->has_taken = false;
}

void MultiNodeSampler::save(torch::serialize::OutputArchive& archive) const {
  const SamplerState now = state();
  archive.write("seed", c10::IValue(static_cast<std::int64_t>(now.seed)));
  archive.write("epoch", c10::IValue(now.epoch));
  archive.write("position", c10::IValue(now.position));
}

void MultiNodeSampler::load(torch::serialize::InputArchive& archive) {
  const auto read = [&](const char* key) {
    c10::IValue value;
    archive.read(key, value);
    return value.toInt();
  };
  load_state({static_cast<std::uint64_t>(read("seed")), read("epoch"), read("position")});
}

std::size_t MultiNodeSampler::batches_per_epoch(std::size_t batch_size) const {
  const std::size_t step = batch_size * static_cast<std::size_t>(impl_->ranks);
  const auto left = static_cast<std::int64_t>(size() % step);
  const IndexRange last = index_range(left, impl_->rank, impl_->ranks, impl_->force_equal_length);
  return size() / step + (last.end > last.begin ? 1 : 0);
}

std::size_t MultiNodeSampler::size() const noexcept {
  return static_cast<std::size_t>(impl_->size);
}

MultiNodeSampler create_multi_node_sampler(std::size_t size,
                                           const std::shared_ptr<Communicator>& communicator,
                                           const SamplerOptions& options) {
  internal::require_communicator(communicator, "create_multi_node_sampler");
  internal::check_equal_size("create_multi_node_sampler", static_cast<std::int64_t>(size),
                             *communicator);
  return MultiNodeSampler(size, communicator->rank(), communicator->size(),
                          communicator->bcast_obj(options));
}

}  // namespace chainmail
