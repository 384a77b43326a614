// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/sharded_step.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <chainmail/train/agreement.h>

#include "base/bytes.h"
#include "base/log.h"
#include "plugin/data/permutation.h"
#include "plugin/elastic/state/state_transfer.h"
#include "plugin/train/communicator/communicator_impl.h"
#include "plugin/train/communicator/fields.h"
#include "plugin/train/gradients/gradient_exchange.h"
#include "plugin/train/optimizer/model_exchange.h"

namespace chainmail::internal {

namespace {

// What the generator's seed depends on besides job and step: a shard's number, or one of these.
constexpr std::uint64_t kBeforeShards = std::uint64_t{1} << 32;
constexpr std::uint64_t kAfterShards = kBeforeShards + 1;
constexpr std::uint64_t kEvaluation = std::uint64_t{1} << 33;  // and a shard's number

// Steps of an elastic job before which the state is compared: the first ones of a world, in which
// what a newcomer was not given shows, and now and then.
constexpr std::int64_t kStepsToLook = 3;
constexpr std::int64_t kStepsBetweenLooks = 100;

}  // namespace

ShardedStep::ShardedStep(std::shared_ptr<Communicator> communicator,
                         std::shared_ptr<ShardProgress> progress, std::uint64_t seed)
    : communicator_(std::move(communicator)),
      progress_(std::move(progress)),
      seed_(seed),
      buffers_(progress_) {}

std::uint32_t ShardedStep::first_shard() const {
  return progress_->cut->bounds.at(static_cast<std::size_t>(progress_->rank));
}

std::uint32_t ShardedStep::end_shard() const {
  return progress_->cut->bounds.at(static_cast<std::size_t>(progress_->rank) + 1);
}

void ShardedStep::add_buffers_of(const ModuleRef& model) { buffers_.add(collect_buffers(model)); }

ElasticJobState ShardedStep::state() const {
  return {is_committed_ ? number_ + 1 : number_, epoch_metrics_, shards(), seed_};
}

void ShardedStep::load_state(const ElasticJobState& state) {
  if (state.next_step < 1) {
    throw InvalidArgument("a job cannot go on at step " + std::to_string(state.next_step));
  }
  if (state.shards != shards() || state.seed != seed_) {
    throw InvalidArgument("a job of " + std::to_string(shards()) + " shards with seed " +
                          std::to_string(seed_) + " cannot go on with the same bits where one of " +
                          std::to_string(state.shards) + " with seed " +
                          std::to_string(state.seed) +
                          " has stopped: give it the same (launcher --shards)");
  }
  number_ = state.next_step;
  epoch_metrics_ = state.metrics;
  is_committed_ = false;
}

void ShardedStep::follow(ElasticMember& member, RegisteredState& state) {
  member_ = &member;
  registered_ = &state;
}

void ShardedStep::enter_world() {
  buffers_.enter_world();
  steps_in_world_ = 0;
  pace_ = {};  // steps may have other sizes
}

void ShardedStep::begin() {
  if (is_committed_) ++number_;
  if (progress_->models.size() == 1)
    buffers_.add(collect_buffers(progress_->models[0]->options().model));
  buffers_.begin();
  for (GradientExchange* const exchange : progress_->exchanges) exchange->drop_shards();
  samples_ = nullptr;
  is_committed_ = ends_epoch_ = has_failed_ = is_over_ = false;
  next_ = first_shard();
  computed_ = 0;
  shard_.reset();
  reports_.clear();
  state_before_.clear();
  const bool looks = steps_in_world_ < kStepsToLook || number_ % kStepsBetweenLooks == 0;
  if (member_ != nullptr && looks) state_before_ = registered_->digests();
  seed_generator(kBeforeShards);
}

void ShardedStep::begin_repetition() {
  if (!is_committed_) --number_;
  is_committed_ = is_repeated_ = true;
  samples_ = nullptr;
  seed_generator(kAfterShards);
}

void ShardedStep::drop() {
  is_over_ = true;
  progress_->is_in_step = false;
  if (samples_ != nullptr) samples_->drop_step();
  samples_ = nullptr;
  shard_.reset();
  buffers_.drop();
  for (GradientExchange* const exchange : progress_->exchanges) exchange->drop_shards();
}

// The same numbers on whichever rank.
void ShardedStep::seed_generator(std::uint64_t place) {
  const std::int64_t step = place >= kEvaluation ? state().next_step : number_;
  const std::uint64_t seed = derive_seed(seed_, static_cast<std::uint64_t>(step));
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_current_seed(derive_seed(seed, place));
}

std::int64_t ShardedStep::epoch() const {
  if (samples_ != nullptr) return samples_->state().epoch - (ends_epoch_ ? 1 : 0);
  throw InvalidArgument("a step has an epoch once shards() has named its sampler");
}

bool ShardedStep::ends_epoch() const {
  if (is_committed_) return ends_epoch_;
  throw InvalidArgument("whether a step ends an epoch is known after its commit()");
}

void ShardedStep::take_from(ShardSampler& samples) {
  if (is_repeated_) {
    samples_ = &samples;
    ends_epoch_ = samples.state().position == 0;
    return;
  }
  if (is_over_ || is_committed_) throw InvalidArgument("shards() of a step that is over");
  if (samples_ != nullptr) {
    throw InvalidArgument("a second shards() in one step: its shards are gone through once");
  }
  if (progress_->models.size() != 1) {
    throw InvalidArgument(
        "a job of shards steps one multi-node optimizer on job->communicator(), "
        "and this one has " +
        std::to_string(progress_->models.size()));
  }
  samples.begin_step(communicator_->size());
  const std::string ramp = communicator_->rank() == 0 ? samples.describe_ramp() : "";
  if (!ramp.empty()) LogMessage(LogLevel::kWarning) << "from step " << number_ << " on " << ramp;
  samples_ = &samples;
  batch_ = samples.next_size();
  begins_epoch_ = samples.state().position == 0;
  progress_->is_in_step = true;
}

Shard* ShardedStep::advance() {
  if (is_repeated_) return nullptr;
  if (samples_ == nullptr || is_committed_)
    throw InvalidArgument("the shards of a step that is over");
  if (shard_) close();
  for (; next_ < end_shard(); close_empty()) {
    if (samples_->part_size(next_, shards()) != 0) {
      open(next_++);
      return shard_.get();
    }
  }
  return nullptr;
}

void ShardedStep::open(std::uint32_t shard) {
  if (computed_ == 0) began_ = std::chrono::steady_clock::now();
  seed_generator(shard);
  buffers_.restore();
  shard_.reset(new Shard(*this, shard, samples_->part(shard, shards())));
  has_backward_ = false;
}

void ShardedStep::close() {
  if (!has_backward_) {
    throw InvalidArgument("shard " + std::to_string(shard_->number()) + " of step " +
                          std::to_string(number_) + " has had no backward()");
  }
  buffers_.take(weight_of_shard());
  shard_.reset();
}

void ShardedStep::close_empty() {
  ++next_;
  for (GradientExchange* const exchange : progress_->exchanges) exchange->add_empty_shard();
  buffers_.take_nothing();
}

double ShardedStep::weight_of_shard() const {
  return static_cast<double>(shard_->indices().size()) / static_cast<double>(batch_);
}

void ShardedStep::backward(const at::Tensor& loss) {
  if (has_failed_) {
    throw InvalidArgument(
        "a backward() of this step has ended with an exception: end the step with it, too");
  }
  if (has_backward_) {
    throw InvalidArgument("a second backward() of shard " + std::to_string(shard_->number()) +
                          ": add its losses up first");
  }
  progress_->weight = weight_of_shard();
  has_failed_ = true;
  struct Between {
    ShardProgress& progress;
    ~Between() { progress.weight.reset(); }
  } const between{*progress_};
  loss.backward();
  // What follows may wait for other ranks.
  computing_ = std::chrono::steady_clock::now() - began_;
  ++computed_;
  for (GradientExchange* const exchange : progress_->exchanges) exchange->end_shard();
  has_failed_ = false;
  has_backward_ = true;
}

void ShardedStep::report(const std::string& name, double mean, std::int64_t count) {
  if (count < 0) throw InvalidArgument("a report of '" + name + "' over a negative count");
  if (name.find('\n') != std::string::npos) {
    throw InvalidArgument("a report's name with a line break in it");
  }
  reports_[name].emplace_back(mean, count);
}

// Those without samples behind the last one are left to do.
void ShardedStep::finish_shards() {
  if (samples_ == nullptr) throw InvalidArgument("a commit() without shards()");
  const bool is_complete = !has_failed_ && (!shard_ || has_backward_) && advance() == nullptr;
  if (is_complete) return;
  throw InvalidArgument("commit() of step " + std::to_string(number_) + " before shard " +
                        std::to_string(shard_ ? shard_->number() : next_) +
                        " has had its backward()");
}

// Of what must be the same on all ranks for the step to be one.
std::string ShardedStep::describe_step() const {
  const ShardSamplerState at = samples_->state();
  return "step " + std::to_string(number_) + ", epoch " + std::to_string(at.epoch) +
         " from sample " + std::to_string(at.position) + " on, of " + samples_->describe() +
         " with seed " + std::to_string(at.seed);
}

void ShardedStep::check_alike(const std::vector<Said>& said) {
  const auto is_other = [&](const Said& one) { return one.place != said.front().place; };
  if (std::ranges::none_of(said, is_other)) return;
  const std::vector<std::string> all = communicator_->allgather_obj(describe_step());
  const auto other = std::ranges::find_if(all, [&](const auto& text) { return text != all[0]; });
  fail_on_all_ranks(*communicator_,
                    "ranks are not at the same step of the same data: rank 0 is at " + all[0] +
                        ", rank " + std::to_string(other - all.begin()) + " at " + *other);
}

// A part that was forgotten makes others differ, a step later.
void ShardedStep::check_state(const std::vector<Said>& said) {
  for (std::size_t rank = 1; rank < said.size(); ++rank) {
    const std::vector<std::uint64_t>& first = said[0].state;
    const std::vector<std::uint64_t>& other = said[rank].state;
    if (first.empty() || other.empty() || first == other) continue;
    const auto [at, unused] = std::ranges::mismatch(first, other);
    const auto part = static_cast<std::size_t>(at - first.begin());
    const auto number = [&](std::size_t of) {
      return std::to_string(communicator_->impl().world->number_of(static_cast<int>(of)));
    };
    fail_on_all_ranks(
        *communicator_,
        "the state of an elastic job differs: '" +
            (part < state_before_.size() ? state_before_[part].name : std::string("a part")) +
            "' is not the same on member " + number(0) + " and on member " + number(rank) +
            " before step " + std::to_string(number_) +
            ". Members that join are given what ElasticJob::add() was told of: is "
            "something missing there, or does the function change something itself?");
  }
}

StepResult ShardedStep::commit(MultiNodeOptimizer& optimizer) {
  communicator_->impl().check_usable();
  if (is_repeated_) return result_;
  if (is_committed_) throw InvalidArgument("a second commit() of one step");
  if (!optimizer.is_on(*communicator_)) {
    throw InvalidArgument(
        "commit() of an optimizer on another communicator than job->communicator()");
  }
  finish_shards();
  // All that may fail because of others comes first.
  buffers_.exchange(*communicator_->impl().group);
  Said own{reports_,
           hash64(describe_step()),
           static_cast<std::uint8_t>(member_ != nullptr && member_->wants_change() ? 1 : 0),
           {}};
  for (const auto& part : state_before_) own.state.push_back(part.digest);
  const std::vector<Said> said = communicator_->allgather_obj(own);
  check_alike(said);
  check_state(said);
  if (member_ != nullptr) {
    member_->on_exchanged(
        std::ranges::any_of(said, [](const Said& one) { return one.wants_change != 0; }));
  }
  progress_->is_committing = true;
  struct Ends {
    ShardProgress& progress;
    ~Ends() { progress.is_committing = false; }
  } const ends{*progress_};
  result_ = optimizer.step();
  optimizer.zero_grad();
  buffers_.commit();
  if (begins_epoch_) epoch_metrics_.clear();
  for (const Said& one : said) add_to_epoch(one.reports);
  samples_->advance();
  ends_epoch_ = samples_->state().position == 0;
  is_committed_ = true;
  ++steps_in_world_;
  progress_->is_in_step = false;
  pace_.add(batch_, computed_, computing_);
  if (member_ != nullptr) member_->on_shard_time(pace_.shard_time());
  seed_generator(kAfterShards);
  return result_;
}

// Shard by shard in their order, whoever had them.
void ShardedStep::add_to_epoch(const Reports& of_rank) {
  for (const auto& [name, values] : of_rank) {
    for (const auto& [mean, count] : values) epoch_metrics_.add(name, mean, count);
  }
}

Metrics ShardedStep::evaluate(
    std::size_t samples, const std::function<Metrics(const std::vector<std::size_t>&)>& shard) {
  if (progress_->is_in_step) {
    throw InvalidArgument("evaluate() between the shards of a step: do it after the commit()");
  }
  using Sums = std::map<std::string, std::pair<double, std::int64_t>>;
  std::vector<Sums> own;
  buffers_.begin();
  on_all_ranks(*communicator_, [&] {
    struct Ends {
      ShardBuffers& buffers;
      ~Ends() { buffers.restore(); }
    } const ends{buffers_};
    for (std::uint32_t number = first_shard(); number < end_shard(); ++number) {
      const std::size_t begin = samples * number / shards();
      std::vector<std::size_t> indices(samples * (number + 1) / shards() - begin);
      std::iota(indices.begin(), indices.end(), begin);
      Sums& sums = own.emplace_back();
      if (indices.empty()) continue;
      seed_generator(kEvaluation + number);
      buffers_.restore();
      const Metrics metrics = shard(indices);
      for (const auto& [name, entry] : metrics.entries()) {
        sums.emplace(name, std::pair(entry.sum, entry.count));
      }
    }
  });
  seed_generator(kAfterShards);
  Metrics all;
  for (const std::vector<Sums>& of_rank : communicator_->allgather_obj(own)) {
    for (const Sums& sums : of_rank) {
      for (const auto& [name, sum] : sums) all.add_sum(name, sum.first, sum.second);
    }
  }
  return all;
}

}  // namespace chainmail::internal
