// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/machine/world_setup.h"

#include <chrono>
#include <cstdint>

namespace chainmail::launch {

using membership::WorldOptions;

WorldOptions world_options(const Options& options) {
  const ElasticOptions& asked = options.elastic;
  WorldOptions world;
  world.sizes = asked.sizes();
  world.first_size = static_cast<std::uint32_t>(options.ranks.value_or(1));
  world.shards = options.shards.value_or(world.sizes.max);
  world.spares = asked.spares;
  world.has_prepare = asked.has_gate();
  world.max_changes = asked.max_changes.value_or(world.max_changes);
  // A rank that fails by itself is blamed by the others before its exit code is known.
  world.reports = std::chrono::milliseconds(500);
  world.window = asked.window.value_or(world.window);
  world.elastic_timeout = asked.timeout.value_or(world.elastic_timeout);
  world.replies = options.stall_timeout.value_or(world.replies);
  world.drain_timeout = asked.drain_timeout.value_or(world.drain_timeout);
  world.prepare_timeout = asked.prepare_timeout.value_or(world.prepare_timeout);
  world.cool_down = asked.cool_down.value_or(world.cool_down);
  world.cool_down_most = asked.cool_down_most.value_or(world.cool_down_most);
  return world;
}

membership::ResumePoint resume_point(const PastLog& past, const Options& options) {
  membership::ResumePoint point;
  point.next_sequence = past.next_sequence;
  point.members = past.members;
  if (options.elastic.resumes) point.generation = past.generation;
  return point;
}

bool changes_size(const membership::HostTable& before, const std::vector<Host>& hosts,
                  const Options& options) {
  if (hosts.empty()) return false;
  std::vector<membership::HostLine> lines;
  for (const Host& host : hosts) {
    lines.push_back({host.name, static_cast<std::uint32_t>(host.slots)});
  }
  membership::HostTable after = before;
  (void)after.read(lines);
  std::uint32_t slots_before = 0;
  std::uint32_t slots_after = 0;
  for (membership::HostId host = 0; host < after.size(); ++host) {
    const std::uint32_t had = host < before.size() ? before[host].slots() : 0;
    if (after[host].slots() < had) return true;
    slots_before += had;
    slots_after += after[host].slots();
  }
  const membership::SizeRange sizes = options.elastic.sizes();
  return sizes.fit(slots_before) != sizes.fit(slots_after);
}

std::string why_slots_stay_empty(const membership::HostsRead& hosts, const Options& options) {
  std::uint64_t slots = 0;
  for (const membership::HostLine& line : hosts.lines) slots += line.slots;
  const std::uint32_t most = options.elastic.sizes().max;
  const std::uint32_t spares = options.elastic.spares;
  if (slots <= std::uint64_t{most} + spares) return "";
  return "the hosts have " + std::to_string(slots) + " slots, and --elastic allows " +
         std::to_string(most) + " ranks" +
         (spares == 0 ? "" : " and " + std::to_string(spares) + " spares") +
         ": the slots beyond stay empty until others fail or leave";
}

}  // namespace chainmail::launch
