// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which samples a rank takes next: shuffled anew in each epoch, to be gone on with at the exact
// sample, on as many ranks as there are then. A sampler for torch's data loaders.
//
// Local, but for create_multi_node_sampler. One thread at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <torch/data/samplers/base.h>

#include <chainmail/communicator.h>

namespace chainmail {

/// How a MultiNodeSampler goes through a dataset.
struct SamplerOptions {
  bool shuffle = true;     ///< anew in each epoch
  std::uint64_t seed = 0;  ///< the same seed gives the same order, everywhere
  /// True: all ranks take equally many samples, so that they make the same number of steps; a few
  /// of the last ones of an epoch are then taken by two ranks. False: no sample twice, for
  /// evaluation; a rank may have one batch less.
  bool force_equal_length = true;
};

/// Where sampling is; the same on all ranks that make the same steps. Plain values, for snapshots.
struct SamplerState {
  std::uint64_t seed = 0;     ///< of the order
  std::int64_t epoch = 0;     ///< whole ones done
  std::int64_t position = 0;  ///< samples of this epoch that all ranks together have taken
  /// All three are equal.
  bool operator==(const SamplerState&) const = default;
};

/// In step k the ranks take the next batch_size * ranks samples of the epoch's order, each its own
/// batch_size: the same samples in a step as one process with a batch that much larger. What is
/// taken is always the beginning of the order, so another number of ranks can go on from it.
///
/// Copies share their position: give one to a data loader and ask another for the state. A loader
/// with workers, or with prefetching, is ahead of the program by the batches that it holds.
class CHAINMAIL_API MultiNodeSampler : public torch::data::samplers::Sampler<> {
 public:
  /// The share of `rank` out of `ranks` in a dataset of `size` samples. Local.
  /// @throws InvalidArgument  no such rank
  MultiNodeSampler(std::size_t size, int rank, int ranks, const SamplerOptions& options = {});

  /// Begins the next epoch; the first one, or the one that load_state() went back into, when
  /// nothing was taken since.
  void reset(std::optional<std::size_t> new_size = std::nullopt) override;
  /// This rank's share of the next batch_size * ranks samples; nothing at the end of the epoch.
  std::optional<std::vector<std::size_t>> next(std::size_t batch_size) override;
  /// Writes state(); torch's interface.
  void save(torch::serialize::OutputArchive& archive) const override;
  /// Reads what save() has written, and goes on as load_state() does.
  void load(torch::serialize::InputArchive& archive) override;

  /// Where this sampler is.
  [[nodiscard]] SamplerState state() const;
  /// Goes on where the sampler that gave `state` was, with its seed, on any number of ranks.
  /// @throws InvalidArgument  a position outside of this dataset
  void load_state(const SamplerState& state);
  /// How many batches next() gives this rank in a whole epoch.
  [[nodiscard]] std::size_t batches_per_epoch(std::size_t batch_size) const;
  /// Samples of the whole dataset.
  std::size_t size() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

/// The sampler of this rank, with rank 0's options. Collective.
/// @throws MismatchError  on all ranks: the dataset has another size on some rank
[[nodiscard]] CHAINMAIL_API MultiNodeSampler
create_multi_node_sampler(std::size_t size, const std::shared_ptr<Communicator>& communicator,
                          const SamplerOptions& options = {});

}  // namespace chainmail
