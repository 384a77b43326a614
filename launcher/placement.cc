// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/placement.h"

#include <algorithm>
#include <limits>

#include "launcher/options.h"

namespace chainmail::launch {
namespace {

int hard_limit(const Host& host) {
  return host.max_slots.value_or(std::numeric_limits<int>::max());
}

std::string counted(long long count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::vector<int> fill_per_node(const std::vector<Host>& hosts, int per_node, int ranks) {
  std::vector<int> counts(hosts.size(), 0);
  for (std::size_t i = 0; i < hosts.size() && ranks > 0; ++i) {
    counts[i] = std::min(per_node, ranks);
    ranks -= counts[i];
  }
  return counts;
}

// Round after round over all slots; only an oversubscribed job needs a second one.
std::vector<int> fill_slots(const std::vector<Host>& hosts, int ranks) {
  std::vector<int> counts(hosts.size(), 0);
  bool progressed = true;
  while (ranks > 0 && progressed) {
    progressed = false;
    for (std::size_t i = 0; i < hosts.size() && ranks > 0; ++i) {
      const int room = std::min(hosts[i].slots, hard_limit(hosts[i]) - counts[i]);
      const int taken = std::min(room, ranks);
      counts[i] += taken;
      ranks -= taken;
      progressed = progressed || taken > 0;
    }
  }
  return counts;
}

void check_per_node(const std::vector<Host>& hosts, const std::vector<int>& counts,
                    bool oversubscribe) {
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (counts[i] > hard_limit(hosts[i])) {
      throw UsageError(counted(counts[i], "rank") + " on host " + hosts[i].name +
                       ", which has max_slots=" + std::to_string(hard_limit(hosts[i])));
    }
    if (counts[i] > hosts[i].slots && !oversubscribe) {
      throw UsageError(counted(counts[i], "rank") + " on host " + hosts[i].name + ", which has " +
                       counted(hosts[i].slots, "slot") +
                       "; add slots to the hostfile, or say --oversubscribe");
    }
  }
}

// Where no slots were written, the user's --per-node is their number.
std::vector<Host> with_slots(std::vector<Host> hosts, const PlacementOptions& options) {
  for (Host& host : hosts) {
    if (host.has_slots || !options.per_node) continue;
    host.slots = std::min(*options.per_node, host.granted.value_or(*options.per_node));
  }
  return hosts;
}

std::string advice_on_slots(const std::vector<Host>& hosts, long long wanted) {
  const auto plain =
      std::find_if(hosts.begin(), hosts.end(), [](const Host& host) { return !host.has_slots; });
  if (plain == hosts.end()) return "; add slots or hosts, or say --oversubscribe";
  const auto count = static_cast<long long>(hosts.size());
  const std::string each = std::to_string((wanted + count - 1) / count);
  return "; a host without a number of slots has one: say --per-node " + each + ", or write '" +
         plain->name + " slots=" + each + "' in the hostfile or " + plain->name + ":" + each +
         " in the list";
}

std::vector<int> counts_of(const std::vector<Host>& hosts, const PlacementOptions& options) {
  long long slots = 0;
  for (const Host& host : hosts) slots += host.slots;
  if (options.per_node) {
    const long long most =
        static_cast<long long>(*options.per_node) * static_cast<long long>(hosts.size());
    const long long wanted = options.ranks.value_or(
        static_cast<int>(std::min<long long>(most, std::numeric_limits<int>::max())));
    if (wanted > most) {
      throw UsageError(counted(wanted, "rank") + " wanted, but --per-node " +
                       std::to_string(*options.per_node) + " on " +
                       counted(static_cast<long long>(hosts.size()), "host") + " gives " +
                       std::to_string(most) + "; raise --per-node or add hosts");
    }
    std::vector<int> counts = fill_per_node(hosts, *options.per_node, static_cast<int>(wanted));
    check_per_node(hosts, counts, options.oversubscribe);
    return counts;
  }
  const long long wanted = options.ranks.value_or(static_cast<int>(slots));
  if (wanted > slots && !options.oversubscribe) {
    throw UsageError(counted(wanted, "rank") + " wanted, but there " +
                     (slots == 1 ? "is " : "are ") + counted(slots, "slot") + " on " +
                     counted(static_cast<long long>(hosts.size()), "host") +
                     advice_on_slots(hosts, wanted));
  }
  std::vector<int> counts = fill_slots(hosts, static_cast<int>(wanted));
  long long placed = 0;
  for (const int count : counts) placed += count;
  if (placed < wanted) {
    throw UsageError(counted(wanted, "rank") + " wanted, but max_slots of all hosts allows " +
                     std::to_string(placed));
  }
  return counts;
}

}  // namespace

Placement place_ranks(const std::vector<Host>& hosts, const PlacementOptions& options) {
  const std::vector<int> counts = counts_of(with_slots(hosts, options), options);
  Placement placement;
  int rank = 0;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (counts[i] == 0) continue;
    const int node = static_cast<int>(placement.nodes.size());
    placement.nodes.push_back(hosts[i]);
    placement.ranks_of_node.push_back(counts[i]);
    for (int local = 0; local < counts[i]; ++local) {
      placement.ranks.push_back({rank++, node, local});
    }
  }
  return placement;
}

}  // namespace chainmail::launch
