// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include <chainmail/elastic.h>

#include <string>
#include <utility>

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <chainmail/train/agreed_error.h>

#include "base/membership/cut.h"
#include "plugin/checkpoint/items/optimizer/optimizer_parts.h"
#include "plugin/elastic/elastic_items.h"
#include "plugin/elastic/job_loop.h"
#include "plugin/job/environment/env.h"
#include "plugin/job/job_connection.h"
#include "plugin/job/torch_group.h"
#include "plugin/job/world.h"
#include "plugin/train/communicator/communicator_impl.h"

namespace chainmail {

using internal::JobLoop;

namespace {

std::uint32_t shards_asked_for(const ElasticJobOptions& options, int ranks) {
  if (options.shards != 0) return options.shards;
  const auto told = internal::read_integer(internal::process_environment(), "CHAINMAIL_SHARDS", 1,
                                           ops::ShardTree::kMostShards);
  return static_cast<std::uint32_t>(told.value_or(ranks));
}

std::string describe_options(std::uint32_t shards, std::uint64_t seed) {
  return std::to_string(shards) + " shards, seed " + std::to_string(seed) + ", " +
         std::to_string(at::get_num_threads()) + " threads, kernels for " +
         at::get_cpu_capability();
}

/// Ranks that disagree would sum along other trees, draw other numbers, or compute in another
/// order, without a word.
void compare_options(Communicator& communicator, const std::string& own) {
  const std::vector<std::string> all = communicator.allgather_obj(own);
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    internal::fail_on_all_ranks(
        communicator, "an elastic job has " + all[0] + " on rank 0 and " + all[rank] + " on rank " +
                          std::to_string(rank) +
                          ": results would depend on who computes what. ATEN_CPU_CAPABILITY gives "
                          "all ranks the kernels of the oldest processor");
  }
}

// It is the launcher that says who computes which of them.
void check_shards_of_launcher(std::uint32_t shards) {
  const auto told = internal::read_integer(internal::process_environment(), "CHAINMAIL_SHARDS", 1,
                                           ops::ShardTree::kMostShards);
  if (told == shards) return;
  throw InvalidArgument("this program divides steps into " + std::to_string(shards) +
                        " shards, and its launcher into " + std::to_string(told.value_or(0)) +
                        ": give launcher the option --shards " + std::to_string(shards) +
                        ", with a MAX of --elastic that is no greater");
}

void check_shards(Communicator& communicator, std::uint32_t shards) {
  const int ranks = communicator.size();
  if (shards >= static_cast<std::uint32_t>(ranks)) return;
  communicator.impl().wait_for_agreement();
  communicator.impl().mark_agreed();
  throw internal::Agreed(InvalidArgument(
      "a step of " + std::to_string(shards) + " shards for " + std::to_string(ranks) +
      " ranks leaves some without work: ask for as many shards as there "
      "will ever be ranks, best a multiple (launcher --shards)"));
}

std::shared_ptr<const ops::ShardCut> even_cut(const ops::ShardTree& tree, int ranks) {
  const std::vector<std::uint32_t> weights(static_cast<std::size_t>(ranks), 1);
  auto cut = std::make_shared<ops::ShardCut>();
  cut->tree = tree;
  cut->bounds = membership::make_cut(tree.shards(), weights);
  return cut;
}

}  // namespace

ElasticJob::ElasticJob(const ElasticJobOptions& options) {
  if (options.threads < 0) throw InvalidArgument("an elastic job with fewer than 0 threads");
  if (internal::parse_torch_backend(options.communicator)) {
    throw InvalidArgument("a job of shards on communicator '" + options.communicator +
                          "', which sums in an order of its own: use one of Chainmail's");
  }
  const bool is_elastic = is_in_elastic_job();
  auto communicator = is_elastic
                          ? internal::make_communicator(make_world_alone(), options.communicator,
                                                        options.communicator_options, "elastic")
                          : create_communicator(options.communicator, options.communicator_options);
  if (options.threads > 0) at::set_num_threads(options.threads);
  const std::uint32_t shards = shards_asked_for(options, communicator->size());
  if (is_elastic) check_shards_of_launcher(shards);
  const ops::ShardTree tree(shards);
  const std::string own = describe_options(shards, options.seed);
  compare_options(*communicator, own);
  check_shards(*communicator, shards);
  auto progress = std::make_shared<internal::ShardProgress>();
  progress->cut = even_cut(tree, communicator->size());
  progress->rank = communicator->rank();
  communicator->impl().shards = progress;
  loop_ = std::make_unique<JobLoop>(std::move(communicator), std::move(progress), options.seed);
  loop_->add(internal::elastic_job_item("job", *this));
  if (is_elastic) loop_->join(internal::job_connection().launcher, own);
}

ElasticJob::~ElasticJob() = default;

const std::shared_ptr<Communicator>& ElasticJob::communicator() const noexcept {
  return loop_->communicator();
}

bool ElasticJob::is_elastic() const noexcept { return loop_->is_elastic(); }

std::uint32_t ElasticJob::shards() const noexcept { return loop_->step().shards(); }

void ElasticJob::add(const std::string& name, ModuleRef model) {
  loop_->refuse_within_run("add()");
  loop_->step().add_buffers_of(model);
  loop_->add(internal::parameters_item(name, model), {.has_fixed_shape = true});
  loop_->add(internal::buffers_item(name + " buffers", model), {.has_fixed_shape = true});
}

void ElasticJob::add(const std::string& name, MultiNodeOptimizer& optimizer) {
  torch::optim::Optimizer& actual = optimizer.actual_optimizer();
  loop_->add(internal::multi_node_optimizer_item(name, optimizer),
             {.is_comparable = internal::has_comparable_parts(actual)});
  loop_->add_option("'" + name + "' is " + internal::describe_optimizer(actual));
}

void ElasticJob::add(const std::string& name, ShardSampler& sampler) {
  loop_->add(internal::shard_sampler_item(name, sampler));
  loop_->add_option("'" + name + "' of " + sampler.describe());
}

void ElasticJob::add(const std::string& name, CheckpointCallbacks callbacks) {
  loop_->add(internal::callbacks_item(name, std::move(callbacks)));
}

void ElasticJob::checkpoint(const std::string& name, const CheckpointOptions& options,
                            std::int64_t interval) {
  loop_->checkpoint(std::make_unique<internal::JobCheckpoints>(name, options, interval));
}

void ElasticJob::on_world(std::function<void(const Membership& world)> callback) {
  loop_->on_world(std::move(callback));
}

void ElasticJob::run(const std::function<bool(Step& step)>& step) { loop_->run(step); }

ElasticJobState ElasticJob::state() const { return loop_->step().state(); }
void ElasticJob::load_state(const ElasticJobState& state) { loop_->load_state(state); }

Metrics ElasticJob::evaluate(
    std::size_t samples,
    const std::function<Metrics(const std::vector<std::size_t>& indices)>& shard) {
  return loop_->step().evaluate(samples, shard);
}

std::unique_ptr<ElasticJob> create_elastic_job(const ElasticJobOptions& options) {
  return std::make_unique<ElasticJob>(options);
}

std::int64_t Step::number() const noexcept { return step_->number(); }
std::int64_t Step::epoch() const { return step_->epoch(); }
bool Step::ends_epoch() const { return step_->ends_epoch(); }
Shards Step::shards(ShardSampler& samples) {
  step_->take_from(samples);
  return Shards(*step_);
}
StepResult Step::commit(MultiNodeOptimizer& optimizer) { return step_->commit(optimizer); }
std::map<std::string, double> Step::metrics() const { return step_->metrics(); }

Shards::Iterator Shards::begin() {
  step_->advance();
  return Iterator(step_);
}
Shard& Shards::Iterator::operator*() const { return *step_->in_hand(); }
Shards::Iterator& Shards::Iterator::operator++() {
  step_->advance();
  return *this;
}
bool Shards::Iterator::operator!=(std::nullptr_t) const noexcept {
  return step_->in_hand() != nullptr;
}

void Shard::backward(const at::Tensor& loss) { step_->backward(loss); }
void Shard::report(const std::string& name, double mean, std::int64_t count) {
  step_->report(name, mean, count);
}

}  // namespace chainmail
