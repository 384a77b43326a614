// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/plan_report.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "launcher/agent/cpu_shares.h"
#include "launcher/hosts/host_source.h"

namespace chainmail::launch {
namespace {

// The processors of each rank, where they can be known before an agent runs.
std::vector<std::optional<std::vector<int>>> cpus_of_ranks(const Placement& placement) {
  std::vector<std::optional<std::vector<int>>> cpus(placement.ranks.size());
  const auto cores = usable_cores();
  std::vector<int> all;
  for (const auto& core : cores) all.insert(all.end(), core.begin(), core.end());
  for (std::size_t i = 0; i < placement.ranks.size(); ++i) {
    const PlacedRank& rank = placement.ranks[i];
    const auto node = static_cast<std::size_t>(rank.node);
    if (!is_this_machine(placement.nodes[node])) continue;
    const auto shares = share_cores(cores, placement.ranks_of_node[node]);
    const auto& share = shares[static_cast<std::size_t>(rank.local_rank)].cpus;
    cpus[i] = share.empty() ? all : share;
  }
  return cpus;
}

template <typename T>
nlohmann::ordered_json or_null(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json(nullptr);
}

}  // namespace

std::string plan_json(const HostSet& hosts, const Placement& placement) {
  nlohmann::ordered_json plan;
  plan["source"] = hosts.source;
  plan["hosts"] = nlohmann::ordered_json::array();
  for (const Host& host : hosts.hosts) {
    plan["hosts"].push_back({{"name", host.name},
                             {"slots", host.slots},
                             {"max_slots", or_null(host.max_slots)},
                             {"user", host.user.empty() ? nlohmann::ordered_json(nullptr)
                                                        : nlohmann::ordered_json(host.user)},
                             {"port", or_null(host.port)}});
  }
  const auto cpus = cpus_of_ranks(placement);
  plan["ranks"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < placement.ranks.size(); ++i) {
    const PlacedRank& rank = placement.ranks[i];
    plan["ranks"].push_back({{"rank", rank.rank},
                             {"host", placement.nodes[static_cast<std::size_t>(rank.node)].name},
                             {"local_rank", rank.local_rank},
                             {"cpus", or_null(cpus[i])}});
  }
  // A file name in "source" may hold any bytes; the output stays valid JSON.
  return plan.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

std::string plan_text(const HostSet& hosts, const Placement& placement) {
  std::ostringstream out;
  out << "hosts from: " << hosts.source << "\n";
  for (const Host& host : hosts.hosts) {
    out << "  " << (host.user.empty() ? "" : host.user + "@") << host.name
        << "  slots=" << host.slots;
    if (host.max_slots) out << " max_slots=" << *host.max_slots;
    if (host.port) out << " port=" << *host.port;
    out << (is_this_machine(host) ? "  (this machine)" : "") << "\n";
  }
  out << "ranks: " << placement.ranks.size() << "\n";
  const auto cpus = cpus_of_ranks(placement);
  for (std::size_t i = 0; i < placement.ranks.size(); ++i) {
    const PlacedRank& rank = placement.ranks[i];
    out << "  rank " << rank.rank << " on "
        << placement.nodes[static_cast<std::size_t>(rank.node)].name << ", local rank "
        << rank.local_rank << ", cpus";
    if (!cpus[i]) out << " shared out by the agent there";
    for (const int cpu : cpus[i].value_or(std::vector<int>{})) out << " " << cpu;
    out << "\n";
  }
  return out.str();
}

}  // namespace chainmail::launch
