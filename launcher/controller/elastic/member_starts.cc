// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/member_starts.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

namespace chainmail::launch {

using membership::HostId;
using membership::MemberId;
using membership::StartMember;

MemberStarts::MemberStarts(JobState& job, RankChannel& channel, AgentStarts& starts,
                           WorldHosts& hosts, Callbacks callbacks)
    : job_(job),
      channel_(channel),
      starts_(starts),
      hosts_(hosts),
      callbacks_(std::move(callbacks)) {}

void MemberStarts::start(const std::vector<StartMember>& members, bool is_held) {
  std::map<HostId, std::uint32_t> nodes;
  for (const auto& [member, host] : members) {
    if (!nodes.contains(host)) nodes[host] = add_node(host);
    add_member(member, nodes[host]);
  }
  for (const auto& [host, node] : nodes) is_held ? held_.push_back(node) : start_agent(node);
}

void MemberStarts::release() {
  for (const std::uint32_t node : std::exchange(held_, {})) {
    if (waiting_.contains(node)) start_agent(node);
  }
}

void MemberStarts::start_agent(std::uint32_t node) {
  try {
    starts_.start_added(node);
  } catch (const std::runtime_error& error) {  // UsageError: what the line asks for is impossible
    callbacks_.on_no_agent(node, error.what());
  }
}

std::uint32_t MemberStarts::add_node(HostId host) {
  const std::uint32_t node = job_.add_node(hosts_[host].asked);
  host_of_node_[node] = host;
  return node;
}

// The machine counts members as the table counts ranks.
void MemberStarts::add_member(MemberId member, std::uint32_t node) {
  std::set<std::uint32_t> taken;
  for (MemberId other = 0; other < job_.ranks.size(); ++other) {
    const bool is_neighbour = host_of(job_.ranks[other].node) == host_of_node_[node];
    if (is_neighbour && !job_.ranks[other].is_gone) taken.insert(places_[other]);
  }
  std::uint32_t place = 0;
  while (taken.contains(place)) ++place;
  places_.push_back(place);
  if (job_.add_rank(node) != member) {
    throw std::logic_error("members and ranks are counted differently");
  }
  waiting_[node].push_back(member);
}

void MemberStarts::on_hello() {
  for (auto waiting = waiting_.begin(); waiting != waiting_.end();) {
    const auto& [node, members] = *waiting;
    const AgentLink* link = job_.agents[node].link.get();
    if (link == nullptr || !link->hello()) {
      ++waiting;
      continue;
    }
    hosts_[host_of_node_[node]].addresses = link->hello()->addresses;
    send_order(node, members);
    waiting = waiting_.erase(waiting);
  }
}

void MemberStarts::send_order(std::uint32_t node, const std::vector<MemberId>& members) {
  StartOrder order = callbacks_.make_order(node);
  order.world_size = job_.ranks.size();
  order.node_rank = host_of_node_[node];
  order.will_ms = static_cast<std::uint32_t>(elastic_grace(job_.options).count());
  order.places = static_cast<std::uint32_t>(hosts_[host_of_node_[node]].asked.slots);
  for (const MemberId member : members) {
    OrderedRank& rank = order.ranks.emplace_back();
    rank.rank = member;
    rank.place = places_[member];
    order.places = std::max(order.places, rank.place + 1);
  }
  set_threads(node, order);
  for (OrderedProgram& program : order.programs) {
    program.variables["CHAINMAIL_ELASTIC"] = job_.options.elastic.sizes_text();
  }
  channel_.send_table_to(node);
  job_.agents[node].all_exited = false;
  job_.agents[node].link->send_order(order);
}

// Sums depend on how many threads make them, so all members have as many, whatever their number and
// hosts are at the moment.
void MemberStarts::set_threads(std::uint32_t node, StartOrder& order) {
  if (threads_ == 0) {
    const auto cores = job_.agents[node].link->hello()->cores;
    threads_ = std::max(1U, cores / static_cast<std::uint32_t>(hosts_.most_slots()));
  }
  for (OrderedProgram& program : order.programs) {
    program.variables.emplace("OMP_NUM_THREADS", std::to_string(threads_));
  }
}

bool MemberStarts::cancel(MemberId member) {
  const std::uint32_t node = job_.ranks[member].node;
  const auto waiting = waiting_.find(node);
  if (waiting == waiting_.end()) return false;
  std::erase(waiting->second, member);
  if (waiting->second.empty()) {
    waiting_.erase(waiting);
    job_.agents.retire(node);
  }
  return true;
}

std::optional<HostId> MemberStarts::host_of(std::uint32_t node) const {
  const auto found = host_of_node_.find(node);
  return found == host_of_node_.end() ? std::nullopt : std::optional(found->second);
}

bool MemberStarts::has_members(HostId host) const {
  return std::any_of(job_.ranks.begin(), job_.ranks.end(), [&](const RankTable::Rank& rank) {
    return !rank.is_gone && host_of(rank.node) == host;
  });
}

}  // namespace chainmail::launch
