// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/base/membership/sim/history.h"

#include <algorithm>
#include <utility>

#include "base/membership/digest.h"

namespace chainmail::membership::sim {

std::uint64_t History::state_at(StepNumber step) {
  while (states_.size() <= step) {
    const std::uint64_t next = states_.size();
    states_.push_back(next_state(states_.back(), next, (next - 1) * batch_, *shape_));
  }
  return states_[step];
}

void History::commit(MemberId member, StepNumber step, std::uint64_t position,
                     std::uint64_t state) {
  add_to_trace(mix(member) + step);
  if (step > newest_commit_) newest_commit_ = step;
  if (position != step * batch_) {
    fail("member " + std::to_string(member) + " is at sample " + std::to_string(position) +
         " after step " + std::to_string(step));
  }
  if (state != state_at(step)) {
    fail("member " + std::to_string(member) + " committed another step " + std::to_string(step) +
         " than its shards make");
  }
}

void History::join(const World& world) {
  Digest digest;
  digest.add(world);
  if (worlds_.size() < world.generation) worlds_.resize(world.generation, 0);
  std::uint64_t& known = worlds_[world.generation - 1];
  if (known == 0) known = digest.value();
  if (known != digest.value()) {
    fail("generation " + std::to_string(world.generation) + " has two member sets");
  }
}

void History::log(const LogRecord& record) {
  add_to_trace(record.sequence * 4 + static_cast<std::uint64_t>(record.change));
  if (record.sequence != next_sequence_++) fail("the log has a gap before " + line_of(record, 0));
  switch (record.change) {
    case Change::kAdded:
      members_.push_back(record.address);
      break;
    case Change::kRemoved:
    case Change::kLost: {
      const auto member = std::find(members_.begin(), members_.end(), record.address);
      if (member == members_.end()) return fail("who was not there left: " + line_of(record, 0));
      members_.erase(member);
      break;
    }
    case Change::kRefused:
      break;
  }
  if (record.size != members_.size()) fail("the log counts wrong: " + line_of(record, 0));
}

void History::save(StepNumber step, std::uint64_t state) {
  if (state != state_at(step)) fail("a wrong state was saved as step " + std::to_string(step));
  if (step > on_disk_) on_disk_ = step;
}

StepNumber History::load(Generation generation) {
  return loaded_.try_emplace(generation, on_disk_).first->second;
}

// What was committed is in the members' digests; of older worlds nothing matters any more.
std::uint64_t History::digest() const {
  std::uint64_t digest = mix(mix(next_sequence_ * 64 + members_.size()) + on_disk_);
  for (const auto& [generation, step] : loaded_) digest = mix(digest + generation * 64 + step);
  return digest;
}

}  // namespace chainmail::membership::sim
