// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/elastic/elastic_items.h"

#include <chainmail/checkpoint.h>

#include "plugin/checkpoint/checkpointer_impl.h"
#include "plugin/checkpoint/items/values.h"

namespace chainmail {
namespace internal {
namespace {

void visit_members(auto&& visit, SamplerState& state) {
  visit("seed", state.seed);
  visit("epoch", state.epoch);
  visit("position", state.position);
}

void visit_members(auto&& visit, ElasticJobState& state) {
  visit("next step", state.next_step);
  visit("metrics", state.metrics);
  visit("shards", state.shards);
  visit("seed", state.seed);
}

template <typename State, typename Thing>
CheckpointItem item_of(const std::string& name, Thing& thing) {
  const auto save = [&thing] {
    CheckpointState saved;
    State state = thing.state();
    visit_members([&](const char* key, auto& member) { put(saved, key, member); }, state);
    return saved;
  };
  const auto load = [&thing](const SavedStates& saved) {
    State state;
    visit_members([&](const char* key, auto& member) { get(saved.own(), key, member); }, state);
    thing.load_state(state);
  };
  return {.name = name, .scope = ItemScope::kCompared, .save = save, .load = load};
}

}  // namespace

CheckpointItem shard_sampler_item(const std::string& name, ShardSampler& sampler) {
  return item_of<SamplerState>(name, sampler);
}

CheckpointItem elastic_job_item(const std::string& name, ElasticJob& job) {
  return item_of<ElasticJobState>(name, job);
}

}  // namespace internal

void MultiNodeCheckpointer::add(const std::string& name, ShardSampler& sampler) {
  impl_->add(internal::shard_sampler_item(name, sampler));
}

void MultiNodeCheckpointer::add(const std::string& name, ElasticJob& job) {
  impl_->add(internal::elastic_job_item(name, job));
}

}  // namespace chainmail
