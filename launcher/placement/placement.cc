// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/placement/placement.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace chainmail::launch {
namespace {

// The hosts of a program and how many ranks they have from the programs before it.
struct Pool {
  std::vector<Host> hosts;
  std::vector<int> used;

  explicit Pool(std::vector<Host> list) : hosts(std::move(list)), used(hosts.size(), 0) {}

  int hard_limit(std::size_t i) const {
    return hosts[i].max_slots.value_or(std::numeric_limits<int>::max());
  }
  // Where no slots were written, the user's --per-node is their number.
  int slots(std::size_t i, std::optional<int> per_node) const {
    if (hosts[i].has_slots || !per_node) return hosts[i].slots;
    return std::min(used[i] + *per_node, hosts[i].granted.value_or(used[i] + *per_node));
  }
  int free_slots(std::size_t i, std::optional<int> per_node) const {
    return std::max(0, std::min(slots(i, per_node), hard_limit(i)) - used[i]);
  }
};

using Counts = std::vector<int>;

std::string counted(long long count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

long long sum(const Counts& counts) { return std::accumulate(counts.begin(), counts.end(), 0LL); }

// Adds up to `ranks` to the counts, none above its limit; what did not fit.
int fill(const Counts& limits, MapBy map_by, int ranks, Counts& counts) {
  bool progressed = true;
  while (ranks > 0 && progressed) {
    progressed = false;
    for (std::size_t i = 0; i < counts.size() && ranks > 0; ++i) {
      const int room = limits[i] - counts[i];
      const int taken = map_by == MapBy::kNode ? std::min(room, 1) : std::min(room, ranks);
      if (taken <= 0) continue;
      counts[i] += taken;
      ranks -= taken;
      progressed = true;
    }
  }
  return ranks;
}

// What no slot is left for: by slot in rounds over as many as each host has slots, by node in turn.
int fill_beyond_slots(const Pool& pool, MapBy map_by, int ranks, Counts& counts) {
  Counts limits(counts.size());
  bool progressed = true;
  while (ranks > 0 && progressed) {
    for (std::size_t i = 0; i < counts.size(); ++i) {
      limits[i] = std::min(counts[i] + pool.hosts[i].slots, pool.hard_limit(i) - pool.used[i]);
    }
    const int left = fill(limits, map_by, ranks, counts);
    progressed = left < ranks;
    ranks = left;
  }
  return ranks;
}

void check_per_node(const Pool& pool, const Counts& counts, std::optional<int> per_node,
                    bool oversubscribe) {
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const Host& host = pool.hosts[i];
    const int total = pool.used[i] + counts[i];
    if (total > pool.hard_limit(i)) {
      throw UsageError(counted(total, "rank") + " on host " + host.name +
                       ", which has max_slots=" + std::to_string(pool.hard_limit(i)));
    }
    if (const int slots = pool.slots(i, per_node); total > slots && !oversubscribe) {
      throw UsageError(counted(total, "rank") + " on host " + host.name + ", which has " +
                       counted(slots, "slot") +
                       "; add slots to the hostfile, or say --oversubscribe");
    }
  }
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

Counts counts_per_node(const Pool& pool, const PlacementOptions& options) {
  const int per_node = *options.per_node;
  const auto hosts = static_cast<long long>(pool.hosts.size());
  const long long most = per_node * hosts;
  const long long wanted = options.ranks.value_or(
      static_cast<int>(std::min<long long>(most, std::numeric_limits<int>::max())));
  if (wanted > most) {
    throw UsageError(counted(wanted, "rank") + " wanted, but --per-node " +
                     std::to_string(per_node) + " on " + counted(hosts, "host") + " gives " +
                     std::to_string(most) + "; raise --per-node or add hosts");
  }
  Counts counts(pool.hosts.size(), 0);
  fill(Counts(counts.size(), per_node), options.map_by, static_cast<int>(wanted), counts);
  check_per_node(pool, counts, per_node, options.oversubscribe);
  return counts;
}

Counts counts_by_slots(const Pool& pool, const PlacementOptions& options) {
  Counts limits(pool.hosts.size());
  for (std::size_t i = 0; i < limits.size(); ++i) limits[i] = pool.free_slots(i, {});
  const long long slots = sum(limits);
  const auto most = static_cast<int>(std::min<long long>(slots, std::numeric_limits<int>::max()));
  const int wanted = options.ranks.value_or(most);
  if ((wanted > slots && !options.oversubscribe) || wanted == 0) {
    throw UsageError(counted(wanted, "rank") + " wanted, but there " +
                     (slots == 1 ? "is " : "are ") + counted(slots, "slot") +
                     (sum(pool.used) == 0 ? " on " : " left on ") +
                     counted(static_cast<long long>(pool.hosts.size()), "host") +
                     advice_on_slots(pool.hosts, std::max(wanted, 1)));
  }
  Counts counts(limits.size(), 0);
  int left = fill(limits, options.map_by, wanted, counts);
  left = fill_beyond_slots(pool, options.map_by, left, counts);
  if (left > 0) {
    throw UsageError(counted(wanted, "rank") + " wanted, but max_slots of all hosts allows " +
                     std::to_string(wanted - left));
  }
  return counts;
}

// Gathers the ranks of all programs.
class RankMap {
 public:
  void add(const std::vector<Host>& hosts, const Counts& counts, MapBy rank_by) {
    std::vector<int> nodes(hosts.size(), -1);
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      if (counts[i] > 0) nodes[i] = node_of(hosts[i]);
    }
    Counts placed(hosts.size(), 0);
    for (int left = static_cast<int>(sum(counts)); left > 0;) {
      for (std::size_t i = 0; i < hosts.size(); ++i) {
        const int room = counts[i] - placed[i];
        const int taken = rank_by == MapBy::kNode ? std::min(room, 1) : room;
        for (int k = 0; k < taken; ++k) place(nodes[i]);
        placed[i] += taken;
        left -= taken;
      }
    }
    ++application_;
  }
  Placement take() { return std::move(placement_); }

 private:
  int node_of(const Host& host) {
    const auto same = [&host](const Host& other) {
      return other.name == host.name && other.user == host.user && other.port == host.port;
    };
    auto& nodes = placement_.nodes;
    const auto found = std::find_if(nodes.begin(), nodes.end(), same);
    if (found != nodes.end()) return static_cast<int>(found - nodes.begin());
    nodes.push_back(host);
    placement_.ranks_of_node.push_back(0);
    return static_cast<int>(nodes.size()) - 1;
  }
  void place(int node) {
    const int rank = static_cast<int>(placement_.ranks.size());
    const int local = placement_.ranks_of_node[static_cast<std::size_t>(node)]++;
    placement_.ranks.push_back({rank, node, local, application_});
  }

  Placement placement_;
  int application_ = 0;
};

}  // namespace

Placement place_applications(const std::vector<ApplicationPlacement>& applications,
                             const PlacementOptions& options) {
  Pool shared(applications.front().hosts);
  RankMap map;
  for (const ApplicationPlacement& application : applications) {
    const bool is_first = &application == &applications.front();
    Pool own(application.hosts);
    Pool& pool = is_first || application.hosts.empty() ? shared : own;
    PlacementOptions one = options;
    one.ranks = application.ranks;
    one.per_node = application.per_node;
    const Counts counts = one.per_node ? counts_per_node(pool, one) : counts_by_slots(pool, one);
    map.add(pool.hosts, counts, options.rank_by.value_or(options.map_by));
    for (std::size_t i = 0; i < counts.size(); ++i) pool.used[i] += counts[i];
  }
  return map.take();
}

}  // namespace chainmail::launch
