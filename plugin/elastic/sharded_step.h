// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The step under way of an ElasticJob: which shard is in hand, what they have reported, and how it
// ends. What Shard, Shards, Step and ElasticJob are fronts of.
//
// One thread per rank. Collective: commit().

#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <chainmail/elastic.h>
#include <chainmail/train/evaluator.h>

#include "plugin/elastic/member/elastic_member.h"
#include "plugin/elastic/shard_buffers.h"
#include "plugin/elastic/shard_pace.h"
#include "plugin/elastic/state/registered_state.h"
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
  bool is_committed() const noexcept { return is_committed_; }
  /// Whether its shards were asked for.
  bool has_shards() const noexcept { return samples_ != nullptr; }

  ElasticJobState state() const;
  /// Between steps.
  void load_state(const ElasticJobState& state);

  /// In an elastic job: whom to tell of commits, and what to compare before a step now and then.
  /// Both outlive this.
  void follow(ElasticMember& member, RegisteredState& state);
  /// The cut has changed, and whatever lies in the group's memory.
  void enter_world();
  /// The step after the one that was committed last, or once more the one that was dropped.
  void begin();
  /// What is left of a step that has not been committed.
  void drop();
  /// For the program's function.
  Step front() { return Step(*this); }

  /// The committed step once more, also on a rank that was not there: shards() are empty and
  /// commit() does nothing until the end of the scope.
  class Repetition {
   public:
    explicit Repetition(ShardedStep& step) : step_(step) { step_.begin_repetition(); }
    ~Repetition() { step_.is_repeated_ = false; }
    Repetition(const Repetition&) = delete;
    Repetition& operator=(const Repetition&) = delete;

   private:
    ShardedStep& step_;
  };

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
  struct Said {
    Reports reports;
    std::uint64_t place = 0;
    std::uint8_t wants_change = 0;     ///< of the world, after this step
    std::vector<std::uint64_t> state;  ///< digests of what was added, as it was before; or none

    static constexpr char kObjectName[] = "end of a step of shards";
    static auto fields(auto& self) {
      return std::tie(self.reports, self.place, self.wants_change, self.state);
    }
  };

  void begin_repetition();
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
  void check_state(const std::vector<Said>& said);
  void add_to_epoch(const Reports& of_rank);

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
  bool is_over_ = true;        ///< no step has begun since the last one was dropped
  bool is_repeated_ = false;   ///< the committed step, for what comes after its commit
  StepResult result_;
  bool begins_epoch_ = false;
  bool is_committed_ = false;
  bool ends_epoch_ = false;
  Reports reports_;
  Metrics epoch_metrics_;
  std::int64_t steps_in_world_ = 0;
  ShardPace pace_;
  std::uint32_t computed_ = 0;  ///< shards of this step, and how long they took
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::duration computing_{0};
  std::vector<RegisteredState::PartDigest> state_before_;  ///< the step; empty: not looked at
  ElasticMember* member_ = nullptr;  ///< null in a job of fixed size, as is the next
  RegisteredState* registered_ = nullptr;
};

}  // namespace chainmail::internal
