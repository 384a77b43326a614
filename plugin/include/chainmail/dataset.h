// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who trains on which samples: ChainerMN's scatter_dataset and scatter_index. Only the seed and the
// size travel between ranks; the data stays where each rank has it.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include <torch/data/datasets/base.h>

#include <chainmail/communicator.h>

namespace chainmail {

/// How a dataset is shared among the ranks. The values of `root` hold for all ranks.
struct ScatterOptions {
  bool shuffle = false;  ///< in a random order instead of that of the dataset
  /// Of the shuffle; the same seed always gives the same samples to the same rank. Unset: root
  /// draws one. The root's value holds for all ranks.
  std::optional<std::uint64_t> seed = std::nullopt;
  int root = 0;  ///< whose options hold
  /// True: every rank has ceil(N/P) samples, so that all take the same number of steps; neighbours
  /// share some. False: no sample twice, lengths differ by one at most.
  bool force_equal_length = true;
};

/// Positions [begin, end) of one rank.
struct IndexRange {
  std::int64_t begin = 0;  ///< the first position
  std::int64_t end = 0;    ///< one past the last
  /// Positions [begin, unique_end) of all ranks cover everything exactly once.
  std::int64_t unique_end = 0;
};

/// The range of `rank` out of `ranks`: begin = floor(N*rank/P), length ceil(N/P) with equal
/// lengths; otherwise the first N mod P ranks get one more. Local.
/// @throws InvalidArgument  negative size, no such rank
[[nodiscard]] CHAINMAIL_API IndexRange index_range(std::int64_t size, int rank, int ranks,
                                                   bool force_equal_length = true);

/// The range of this rank of a dataset of `size` samples, as the root gives it. Collective.
[[nodiscard]] CHAINMAIL_API IndexRange
scatter_index(std::int64_t size, const std::shared_ptr<Communicator>& communicator,
              const ScatterOptions& options = {});

/// What one rank sees of a dataset.
struct ScatteredIndices {
  std::vector<std::int64_t> indices;  ///< into the whole dataset
  std::size_t unique_count = 0;       ///< the first so many are nobody else's
};

/// Ranges and permutation in one. Collective.
/// @throws MismatchError  on all ranks: the dataset has another size on some rank
[[nodiscard]] CHAINMAIL_API ScatteredIndices
scatter_indices(std::int64_t size, const std::shared_ptr<Communicator>& communicator,
                const ScatterOptions& options = {});

namespace internal {

template <typename D>
decltype(auto) sample_of(D& dataset, std::size_t index) {
  if constexpr (requires { dataset.get(index); }) {
    return dataset.get(index);
  } else {
    return (dataset[index]);
  }
}

template <typename D>
std::int64_t size_of_dataset(const D& dataset) {
  if constexpr (requires { dataset.size().value(); }) {
    return static_cast<std::int64_t>(dataset.size().value());  // torch's datasets
  } else {
    return static_cast<std::int64_t>(dataset.size());
  }
}

}  // namespace internal

/// This rank's samples of a dataset, itself a dataset for torch's data loaders. Shares the whole
/// dataset with its copies.
template <typename D>
class SubDataset
    : public torch::data::datasets::Dataset<
          SubDataset<D>,
          std::decay_t<decltype(internal::sample_of(std::declval<D&>(), std::size_t{}))>> {
 public:
  /// What get() returns: what the whole dataset has.
  using Sample = std::decay_t<decltype(internal::sample_of(std::declval<D&>(), std::size_t{}))>;

  /// The samples `scattered.indices` of `dataset`, which it shares. Local.
  SubDataset(std::shared_ptr<D> dataset, ScatteredIndices scattered)
      : dataset_(std::move(dataset)), scattered_(std::move(scattered)) {}

  /// Sample `index` of this rank, from 0.
  /// @throws std::out_of_range  no such sample
  Sample get(std::size_t index) override {
    return internal::sample_of(*dataset_, static_cast<std::size_t>(scattered_.indices.at(index)));
  }
  /// Samples of this rank.
  std::optional<std::size_t> size() const override { return scattered_.indices.size(); }

  /// Positions of this rank's samples in the whole dataset.
  const std::vector<std::int64_t>& indices() const noexcept { return scattered_.indices; }
  /// The samples without those that another rank has too: what an evaluator should go through.
  SubDataset without_duplicates() const {
    ScatteredIndices unique = scattered_;
    unique.indices.resize(unique.unique_count);
    return SubDataset(dataset_, std::move(unique));
  }
  /// The whole dataset.
  D& whole() const noexcept { return *dataset_; }

 private:
  std::shared_ptr<D> dataset_;
  ScatteredIndices scattered_;
};

/// Gives every rank its samples. `dataset` has size() and get(i), as torch's datasets, or size()
/// and [i], as std::vector; every rank passes the whole one. Collective.
/// @throws MismatchError  on all ranks: the dataset has another size on some rank
template <typename D>
[[nodiscard]] SubDataset<D> scatter_dataset(std::shared_ptr<D> dataset,
                                            const std::shared_ptr<Communicator>& communicator,
                                            const ScatterOptions& options = {}) {
  const std::int64_t size = internal::size_of_dataset(*dataset);
  return SubDataset<D>(std::move(dataset), scatter_indices(size, communicator, options));
}

/// The same for a dataset by value.
template <typename D>
[[nodiscard]] SubDataset<D> scatter_dataset(D dataset,
                                            const std::shared_ptr<Communicator>& communicator,
                                            const ScatterOptions& options = {}) {
  return scatter_dataset(std::make_shared<D>(std::move(dataset)), communicator, options);
}

/// As many samples without content as another dataset has: for ranks whose part of the model takes
/// no input.
class EmptyDataset : public torch::data::datasets::Dataset<EmptyDataset, std::tuple<>> {
 public:
  /// `size` samples without content.
  explicit EmptyDataset(std::size_t size) : size_(size) {}
  /// An empty tuple, whatever the index.
  std::tuple<> get(std::size_t /*index*/) override { return {}; }
  /// As given to the constructor.
  std::optional<std::size_t> size() const override { return size_; }

 private:
  std::size_t size_;
};

/// An EmptyDataset as long as `dataset`. Local.
template <typename D>
[[nodiscard]] EmptyDataset create_empty_dataset(const D& dataset) {
  return EmptyDataset(static_cast<std::size_t>(internal::size_of_dataset(dataset)));
}

}  // namespace chainmail
