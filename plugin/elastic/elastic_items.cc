// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/elastic_items.h"

#include <chainmail/checkpoint.h>

#include "plugin/checkpoint/checkpointer_impl.h"
#include "plugin/checkpoint/items/state_item.h"

namespace chainmail {
namespace internal {
namespace {

void visit_ramp(auto&& visit, ShardSamplerState& state) {
  visit("first ranks", state.first_ranks);
  visit("ranks", state.ranks);
  visit("ramp from", state.ramp_from);
  visit("ramp done", state.ramp_done);
}

void visit_members(auto&& visit, ElasticJobState& state) {
  visit("next step", state.next_step);
  visit("metrics", state.metrics);
  visit("shards", state.shards);
  visit("seed", state.seed);
}

}  // namespace

CheckpointItem shard_sampler_item(const std::string& name, ShardSampler& sampler) {
  // Files of jobs that divide a fixed batch know nothing of ranks.
  const bool has_ramp = sampler.options().policy == BatchPolicy::kPerRank;
  return state_item<ShardSamplerState>(name, sampler, [has_ramp](auto&& visit, auto& state) {
    visit("seed", state.seed);
    visit("epoch", state.epoch);
    visit("position", state.position);
    if (has_ramp) visit_ramp(visit, state);
  });
}

CheckpointItem elastic_job_item(const std::string& name, ElasticJob& job) {
  return state_item<ElasticJobState>(
      name, job, [](auto&& visit, auto& state) { visit_members(visit, state); });
}

}  // namespace internal

void MultiNodeCheckpointer::add(const std::string& name, ShardSampler& sampler) {
  impl_->add(internal::shard_sampler_item(name, sampler));
}

void MultiNodeCheckpointer::add(const std::string& name, ElasticJob& job) {
  impl_->add(internal::elastic_job_item(name, job));
}

}  // namespace chainmail
