// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The hosts of an elastic job by the numbers that a WorldMachine gives them: in the order in which
// it first reads of them.
//
// One thread.

#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/membership/types.h"
#include "base/membership/world/world_events.h"
#include "launcher/job/host.h"

namespace chainmail::launch {

struct WorldHost {
  Host asked;             ///< as the hosts file had it last
  std::string addresses;  ///< as its agent has told them
};

class WorldHosts {
 public:
  /// New contents of the hosts file: the event for the machine.
  membership::HostsRead read(const std::vector<Host>& hosts) {
    membership::HostsRead event;
    for (const Host& host : hosts) {
      event.lines.push_back({host.name, static_cast<std::uint32_t>(host.slots)});
      if (const auto known = find(host.name)) {
        hosts_[*known].asked = host;
      } else {
        hosts_.push_back({host, ""});
      }
    }
    return event;
  }

  [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(hosts_.size()); }
  WorldHost& operator[](membership::HostId host) { return hosts_.at(host); }
  const WorldHost& operator[](membership::HostId host) const { return hosts_.at(host); }
  /// By its name; nothing of one that has never been read of.
  [[nodiscard]] std::optional<membership::HostId> find(const std::string& name) const {
    const auto known =
        std::ranges::find(hosts_, name, [](const auto& one) { return one.asked.name; });
    if (known == hosts_.end()) return std::nullopt;
    return static_cast<membership::HostId>(known - hosts_.begin());
  }
  [[nodiscard]] int most_slots() const {
    int most = 1;
    for (const WorldHost& host : hosts_) most = std::max(most, host.asked.slots);
    return most;
  }

 private:
  std::vector<WorldHost> hosts_;
};

}  // namespace chainmail::launch
