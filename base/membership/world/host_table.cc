// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "base/membership/world/host_table.h"

#include <algorithm>

#include "base/bytes.h"
#include "base/membership/seeded_bug.h"

namespace chainmail::membership {
namespace {

constexpr std::uint32_t kMostDoublings = 20;

}  // namespace

std::uint32_t HostTable::Host::slots() const {
  if (is_leaving) return 0;
  if (has_bug(SeededBug::kBaseCheckSkipped)) return file_slots;
  return std::max(file_slots, base_slots);
}

std::vector<HostId> HostTable::read(const std::vector<HostLine>& lines) {
  std::vector<HostId> refused;
  for (HostId id = 0; id < size(); ++id) {
    Host& host = hosts_[id];
    const auto line = std::find_if(lines.begin(), lines.end(), [&](const HostLine& candidate) {
      return candidate.address == host.address;
    });
    const std::uint32_t slots = line == lines.end() ? 0 : line->slots;
    if (slots < host.base_slots && slots < host.file_slots) refused.push_back(id);
    const bool has_come_back = host.file_slots == 0 && slots != 0;
    if (has_come_back) host.is_leaving = false;
    if (has_come_back && host.gate != Gate::kPreparing) host.gate = Gate::kClosed;
    host.file_slots = slots;
  }
  for (const HostLine& line : lines) {
    const bool is_known = std::any_of(hosts_.begin(), hosts_.end(), [&](const Host& host) {
      return host.address == line.address;
    });
    if (is_known) continue;
    Host& host = hosts_.emplace_back();
    host.address = line.address;
    host.file_slots = line.slots;
    host.base_slots = std::min(base_left_, line.slots);
    base_left_ -= host.base_slots;
  }
  return refused;
}

void HostTable::fail(HostId id) {
  hosts_.at(id).is_cooling = true;
  ++hosts_.at(id).failures;
}

std::chrono::milliseconds HostTable::wait_after_failure(HostId id,
                                                        const WorldOptions& options) const {
  const Host& host = hosts_.at(id);
  const std::uint32_t doublings = std::min(host.failures - 1, kMostDoublings);
  const auto wait = std::min(options.cool_down * (1U << doublings), options.cool_down_most);
  const std::uint32_t spread =
      internal::NumberHash().add(internal::hash64(host.address)).add(host.failures).value() % 501;
  return wait * (750 + spread) / 1000;
}

}  // namespace chainmail::membership
