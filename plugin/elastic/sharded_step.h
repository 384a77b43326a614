// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The step under way of an ElasticJob: which shard is in hand, what they have reported, and how it
// ends. What Shard, Shards, Step and ElasticJob are fronts of.
//
// One thread per rank. Collective: commit().

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <chainmail/elastic.h>
#include <chainmail/train/evaluator.h>

#include "plugin/elastic/shard_buffers.h"
#include "plugin/train/shards/shard_progress.h"

namespace chainmail::internal {

class ShardedStep {
 public:
  ShardedStep(std::shared_ptr<Communicator> communicator, std::shared_ptr<ShardProgress> progress,
              std::uint64_t seed);

  const std::shared_ptr<Communicator>& communicator() const noexcept { return communicator_; }
  std::uint32_t shards() const noexcept { return progress_->cut->tree.shards(); }
  std::int64_t number() const noexcept { return number_; }
  std::int64_t epoch() const;
  bool ends_epoch() const;
  std::map<std::string, double> metrics() const { return epoch_metrics_.means(); }
  void add_buffers_of(const ModuleRef& model);

  ElasticJobState state() const;
  void load_state(const ElasticJobState& state);

  void run(const std::function<bool(Step& step)>& function);

  void take_from(ShardSampler& samples);
  /// The first shard with samples, or the one after the one in hand; null at the end.
  Shard* advance();
  Shard* in_hand() const noexcept { return shard_.get(); }

  void backward(const at::Tensor& loss);
  void report(const std::string& name, double mean, std::int64_t count);
  StepResult commit(MultiNodeOptimizer& optimizer);
  Metrics evaluate(std::size_t samples,
                   const std::function<Metrics(const std::vector<std::size_t>&)>& shard);

 private:
  /// What the shards of a rank have reported, each name with one (mean, samples) per shard.
  using Reports = std::map<std::string, std::vector<std::pair<double, std::int64_t>>>;

  /// What a rank says of a step: its reports, and a hash of what must be the same on all ranks.
  using Said = std::pair<Reports, std::uint64_t>;

  bool call(const std::function<bool(Step& step)>& function);
  void begin();
  void seed_generator(std::uint64_t place);
  std::uint32_t first_shard() const;
  std::uint32_t end_shard() const;
  void open(std::uint32_t shard);
  void close();
  void close_empty();
  double weight_of_shard() const;
  void finish_shards();
  std::string describe_step() const;
  void check_alike(const std::vector<Said>& said);
  void add_to_epoch(const Reports& of_rank);
  void drop();

  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<ShardProgress> progress_;
  std::uint64_t seed_;
  ShardBuffers buffers_;
  std::int64_t number_ = 1;
  ShardSampler* samples_ = nullptr;
  std::int64_t batch_ = 0;  ///< samples of this step
  std::uint32_t next_ = 0;  ///< the shard that is opened next
  std::unique_ptr<Shard> shard_;
  bool has_backward_ = false;  ///< of the shard in hand
  bool has_failed_ = false;    ///< a backward of this step
  bool is_running_ = false;
  bool begins_epoch_ = false;
  bool is_committed_ = false;
  bool ends_epoch_ = false;
  Reports reports_;
  Metrics epoch_metrics_;
};

}  // namespace chainmail::internal
