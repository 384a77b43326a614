// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which samples the shards of a step take, for jobs whose number of ranks may change.
//
// Local. One thread at a time.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <chainmail/export.h>

namespace chainmail {

class ElasticJob;

namespace internal {
class ShardedStep;
}  // namespace internal

/// What stays as large as it is when the number of ranks changes.
enum class BatchPolicy {
  kPerStep,  ///< the step's batch: the same bits on any number of ranks
  kPerRank,  ///< the part of each rank, so that more ranks take fewer steps for an epoch. What is
             ///< learned depends on how many there were in which step, and the learning rate has
             ///< to follow: ShardSampler::batch_scale()
};

/// How a ShardSampler goes through a dataset.
struct ShardSamplerOptions {
  std::int64_t batch = 0;  ///< samples of a step, of all shards together; or of each rank
  bool shuffle = true;     ///< anew in each epoch
  std::uint64_t seed = 0;  ///< of the order
  BatchPolicy policy = BatchPolicy::kPerStep;  ///< of what `batch` is
  /// With kPerRank: steps in which batch_scale() moves to its new value; 0 and 1: at once. About
  /// 5 / (1 - momentum), since a momentum holds on to the noise of smaller batches for as long.
  std::int64_t ramp_steps = 50;
};

/// Where a ShardSampler is; the same on all ranks.
struct ShardSamplerState {
  std::uint64_t seed = 0;     ///< of the order
  std::int64_t epoch = 0;     ///< whole ones done
  std::int64_t position = 0;  ///< samples of this epoch that were taken
  // With kPerRank. 0 ranks: no step yet.
  std::int64_t first_ranks = 0;  ///< of the first step
  std::int64_t ranks = 0;        ///< of the last one
  double ramp_from = 1;          ///< batch_scale() when their number changed
  std::int64_t ramp_done = 0;    ///< steps since then, up to ShardSamplerOptions::ramp_steps
  /// All are equal.
  bool operator==(const ShardSamplerState&) const = default;
};

/// Which samples the shards of a step take: those of step k are the next `batch` of the epoch's
/// order, in the last step of an epoch what is left; shard v has a contiguous part of them. The
/// position moves when the step is committed. Local.
class CHAINMAIL_API ShardSampler {
 public:
  /// @throws InvalidArgument  no samples, a batch below one, a negative number of steps
  ShardSampler(std::size_t size, const ShardSamplerOptions& options);

  /// Of the whole dataset.
  std::size_t size() const noexcept { return size_; }
  /// As they were given.
  const ShardSamplerOptions& options() const noexcept { return options_; }
  /// Steps of an epoch; with kPerRank on as many ranks as had the last step, one before the first.
  std::size_t steps_per_epoch() const noexcept;
  /// With kPerRank, from Step::shards() on: by what the learning rate of the first step's number of
  /// ranks is to be multiplied in this one. It grows as the batch does, the learning rate of plain
  /// SGD with it; take its square root for Adam and its like. After a change of the number of ranks
  /// it moves there in a line of ramp_steps steps (Lin et al., Dynamic Mini-batch SGD for Elastic
  /// Distributed Training, 2019). Otherwise 1.
  double batch_scale() const noexcept;
  /// What was committed; load_state() takes it, on any number of ranks.
  ShardSamplerState state() const noexcept { return now_; }
  /// @throws InvalidArgument  a position outside of this dataset, or a ramp that cannot be
  void load_state(const ShardSamplerState& state);

 private:
  friend class ElasticJob;
  friend class internal::ShardedStep;
  std::string describe() const;
  bool is_per_rank() const noexcept { return options_.policy == BatchPolicy::kPerRank; }
  double scale_of(const ShardSamplerState& state) const noexcept;
  void begin_step(int ranks);
  void drop_step() noexcept { next_ = now_; }
  std::string describe_ramp() const;
  std::int64_t next_size() const noexcept;
  std::vector<std::size_t> part(std::uint32_t shard, std::uint32_t shards);
  std::int64_t part_size(std::uint32_t shard, std::uint32_t shards) const noexcept;
  void advance() noexcept;

  std::size_t size_;
  ShardSamplerOptions options_;
  ShardSamplerState now_;
  ShardSamplerState next_;           ///< with the step that has begun, but for its position
  std::vector<std::int64_t> order_;  ///< of order_epoch_
  std::int64_t order_epoch_ = -1;
};

}  // namespace chainmail
