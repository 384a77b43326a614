// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What has state() and load_state() as a part of a checkpoint, member by member. Local.

#pragma once

#include <string>

#include <chainmail/checkpoint.h>
#include <chainmail/data/sampler.h>

#include "plugin/checkpoint/items/items.h"
#include "plugin/checkpoint/items/values.h"

namespace chainmail::internal {

void visit_members(auto&& visit, SamplerState& state) {
  visit("seed", state.seed);
  visit("epoch", state.epoch);
  visit("position", state.position);
}

/// `visit_all(visit, state)` calls visit(key, member) for all members of a state.
template <typename State, typename Thing>
CheckpointItem state_item(const std::string& name, Thing& thing, const auto& visit_all) {
  const auto save = [&thing, visit_all] {
    CheckpointState saved;
    State state = thing.state();
    visit_all([&](const char* key, auto& member) { put(saved, key, member); }, state);
    return saved;
  };
  const auto load = [&thing, visit_all](const SavedStates& saved) {
    State state{};
    visit_all([&](const char* key, auto& member) { get(saved.own(), key, member); }, state);
    thing.load_state(state);
  };
  return {.name = name, .scope = ItemScope::kCompared, .save = save, .load = load};
}

}  // namespace chainmail::internal
