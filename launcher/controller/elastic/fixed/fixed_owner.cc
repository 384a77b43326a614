// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/fixed/fixed_owner.h"

#include <algorithm>
#include <asio/post.hpp>
#include <stdexcept>
#include <utility>
#include <variant>

#include "launcher/controller/elastic/machine/world_setup.h"
#include "launcher/controller/state/root_cause.h"

namespace chainmail::launch {
namespace {

using membership::HostId;
using membership::MemberId;

// Of which the distance from one change to the next is a multiple.
constexpr std::chrono::milliseconds kMostPause{3000};
// Once all hosts of -n are up. Those that come later are a change.
constexpr std::chrono::milliseconds kForOthers{2000};

// Those of the controller before are logged as gone before the machine speaks.
membership::ResumePoint resume_after(const PastLog& past) {
  membership::ResumePoint point;
  point.next_sequence = past.next_sequence + past.members.size();
  point.generation = past.generation;
  return point;
}

}  // namespace

FixedOwner::FixedOwner(JobState& job, RankChannel& channel, AgentStarts& starts,
                       const HostSet& hosts, Callbacks callbacks)
    : job_(job),
      channel_(channel),
      starts_(starts),
      callbacks_(std::move(callbacks)),
      first_hosts_(hosts.hosts),
      log_(hosts.own_file(), WorldLog::Start::kGoesOn,
           [this](const std::string& line) { job_.say(line); }),
      machine_(world_options(job.options), resume_after(log_.past())),
      timers_(job.io, [this](const auto& event) { events_.give(event); }),
      watch_(job, machine_, hosts,
             {.on_hosts = [this](const auto& now) { events_.give(hosts_.read(now)); },
              .on_there = [this](const auto& name) { gate_.on_there(name); },
              .on_missing = [this](const auto& name) { gate_.on_missing(name); }}),
      gate_(job, starts, hosts_, watch_.folder(), watch_.folder_name(),
            {.make_order = callbacks_.make_order,
             .on_ended = [this](const auto& event) { events_.give(event); },
             .on_host_lost =
                 [this](HostId host, const std::string& cause) {
                   const auto node = nodes_.find(host);
                   const bool has_some = node != nodes_.end() && has_ranks(node->second);
                   events_.give(lost_in_gate(host, cause, has_some));
                 },
             .make_file = [this](const auto& name) { return watch_.make_file(name); },
             .is_unmade = [this](const auto& name) { return watch_.is_unmade(name); },
             .note = [this](const auto& words) { log_.note(words); }}),
      events_(job.io, [this](const auto& event) { handle(event); }),
      others_timer_(job.io) {}

void FixedOwner::start() {
  log_ranks_before();
  events_.give(hosts_.read(first_hosts_));
  watch_.start();
}

// Whoever replays the log would count them for ever.
void FixedOwner::log_ranks_before() {
  const PastLog& past = log_.past();
  auto size = static_cast<std::uint32_t>(past.members.size());
  std::uint64_t sequence = past.next_sequence;
  for (const std::string& address : past.members) {
    log_.record({sequence++, membership::Change::kRemoved, address, past.generation, 0, --size,
                 "all ranks are started anew"});
  }
}

void FixedOwner::stop() {
  events_.close();
  watch_.stop();
  timers_.stop();
  gate_.stop();
  others_timer_.cancel();
}

void FixedOwner::on_ended_well() {
  if (!has_begun_) return;
  has_ended_well_ = true;
  stop();
}

void FixedOwner::on_hello() {
  if (events_.is_closed()) return;
  gate_.on_hello();
  for (const auto& [host, node] : nodes_) {
    if (is_up(host)) hosts_[host].addresses = job_.agents[node].link->hello()->addresses;
  }
  settle();
}

bool FixedOwner::on_frame(std::uint32_t node, const internal::Frame& frame) {
  return gate_.on_frame(node, frame);
}

void FixedOwner::on_agent_lost(std::uint32_t node, const std::string& cause) {
  const AgentLink* const link = job_.agents[node].link.get();
  const bool was_there = link != nullptr && link->hello();
  job_.agents.retire(node);
  if (events_.is_closed()) return;
  const std::string in_short = cause.substr(0, cause.find('\n'));
  job_.say("launcher: " + (was_there ? "lost host " + job_.agents[node].host + ": " : "") + cause);
  if (gate_.on_agent_lost(node, in_short)) return;
  if (const auto host = host_of(node)) lose(*host, in_short);
}

void FixedOwner::lose(HostId host, const std::string& cause) {
  nodes_.erase(host);
  std::erase_if(seats_, [&](const auto& seat) { return seat.second.host == host; });
  if (has_begun_) return events_.give(membership::HostLost{host, cause});
  losses_.push_back({host, cause});
  settle();
}

bool FixedOwner::on_leaving(std::uint32_t node) {
  const std::string& name = job_.agents[node].host;
  const auto host = hosts_.find(name);
  if (!host || (events_.is_closed() && !starts_anew_ && !has_ended_well_)) return false;
  if (std::find(leaving_.begin(), leaving_.end(), name) == leaving_.end()) leaving_.push_back(name);
  if (!is_anybody_left()) return false;
  log_.note("Got notice that host:" + name + " is about to end");
  events_.give(membership::HostLeaving{*host});
  return true;
}

// On a host that nobody has told to end.
bool FixedOwner::is_anybody_left() const {
  const auto stays = [this](const std::string& name) {
    return std::find(leaving_.begin(), leaving_.end(), name) == leaving_.end();
  };
  if (starts_anew_) {
    return std::ranges::any_of(watch_.latest().hosts,
                               [&](const Host& host) { return stays(host.name); });
  }
  if (has_ended_well_) {
    return std::ranges::any_of(job_.ranks, [&](const RankTable::Rank& rank) {
      return !rank.is_gone && stays(job_.agents[rank.node].host);
    });
  }
  const auto has_one = [&](HostId host) { return stays(hosts_[host].asked.name); };
  return std::ranges::any_of(gate_.hosts(), has_one) ||
         std::ranges::any_of(seats_, [&](const auto& seat) { return has_one(seat.second.host); });
}

void FixedOwner::handle(const membership::WorldEvent& event) {
  membership::WorldActions actions;
  machine_.on(event, actions);
  for (const membership::WorldAction& action : actions) {
    if (!events_.is_closed()) std::visit([this](const auto& one) { act(one); }, action);
  }
  if (first_ && !events_.is_closed()) begin(*std::exchange(first_, nullptr));
  if (!events_.is_closed()) start_agents();
}

void FixedOwner::act(const membership::Tell& action) {
  if (std::holds_alternative<membership::Leave>(action.message)) return;
  const auto* const world = std::get_if<membership::NewWorld>(&action.message);
  if (!has_begun_ && world != nullptr) {
    first_ = world->world;
    return;
  }
  if (has_begun_) change("the hosts have changed");
}

void FixedOwner::act(const membership::StartMember& action) {
  seats_[action.member] = {action.host};
}

void FixedOwner::act(const membership::EndMember& action) {
  const auto seat = seats_.find(action.member);
  if (seat == seats_.end()) return;
  const HostId host = seat->second.host;
  seats_.erase(seat);
  events_.give(membership::MemberEnded{action.member, 0, "is not needed"});
  if (has_seats(host) || !nodes_.contains(host) || has_ranks(nodes_[host])) return;
  job_.agents.retire(nodes_[host]);
  nodes_.erase(host);
}

void FixedOwner::act(const membership::EndJob& action) {
  stop();
  callbacks_.on_end(action.code, action.cause);
}

// On hosts with seats that have none.
void FixedOwner::start_agents() {
  std::vector<HostId> wanted;
  for (const auto& [id, seat] : seats_) {
    if (nodes_.contains(seat.host)) continue;
    nodes_[seat.host] = job_.add_node(hosts_[seat.host].asked);
    wanted.push_back(seat.host);
  }
  for (const HostId host : wanted) {
    log_.note("Launching worker node at ip: " + hosts_[host].asked.name);
    const std::uint32_t node = nodes_[host];
    try {
      starts_.start_added(node);
    } catch (const std::runtime_error& error) {  // UsageError: what the line asks for is impossible
      callbacks_.on_no_agent(node, error.what());
    }
  }
  settle();
}

// Tells the machine whose agent is up. Its first world begins with the last base member that is
// ready or lost, and has whoever is ready by then; so it hears of all at once, of base members
// last.
void FixedOwner::settle() {
  if (!has_begun_ && is_anybody_awaited()) return;
  std::vector<MemberId> base;
  for (auto& [id, seat] : seats_) {
    if (seat.is_ready || !is_up(seat.host)) continue;
    seat.is_ready = true;
    if (is_base(id)) {
      base.push_back(id);
    } else {
      events_.give(membership::MemberSaid{id, membership::Ready{}});
    }
  }
  for (auto& loss : std::exchange(losses_, {})) events_.give(std::move(loss));
  for (const MemberId id : base) events_.give(membership::MemberSaid{id, membership::Ready{}});
}

// Hosts of -n, and for a moment the others, of which one may be out of reach.
bool FixedOwner::is_anybody_awaited() {
  bool is_other_awaited = false;
  for (const auto& [id, seat] : seats_) {
    if (is_up(seat.host)) continue;
    if (is_base(id)) return true;
    is_other_awaited = true;
  }
  if (!is_other_awaited || has_waited_for_others_) return false;
  if (std::exchange(waits_for_others_, true)) return true;
  others_timer_.expires_after(kForOthers);
  others_timer_.async_wait([this](const asio::error_code& error) {
    if (error || events_.is_closed()) return;
    has_waited_for_others_ = true;
    settle();
  });
  return true;
}

// Ranks of a host are neighbours, whatever order its seats came in.
void FixedOwner::begin(const membership::World& world) {
  has_begun_ = true;
  std::vector<HostId> order;
  for (const HostId host : world.hosts) {
    if (!is_up(host))
      return change("host " + hosts_[host].asked.name + " was lost before it had ranks");
    if (std::find(order.begin(), order.end(), host) == order.end()) order.push_back(host);
  }
  std::vector<StartOrder> orders;
  for (const HostId host : order) {
    StartOrder& started = orders.emplace_back(callbacks_.make_order(nodes_.at(host)));
    started.node_rank = static_cast<std::uint32_t>(orders.size() - 1);
    started.world_size = static_cast<std::uint32_t>(world.members.size());
    for (auto seats = std::count(world.hosts.begin(), world.hosts.end(), host); seats > 0;
         --seats) {
      started.ranks.emplace_back().rank = job_.add_rank(nodes_.at(host));
    }
  }
  for (std::size_t at = 0; at < order.size(); ++at) {
    const std::uint32_t node = nodes_.at(order[at]);
    channel_.send_table_to(node);
    job_.agents[node].all_exited = false;
    job_.agents[node].link->send_order(orders[at]);
  }
  job_.say(
      "launcher: " + std::to_string(world.members.size()) +
      (world.members.size() == 1 ? " rank is started (restart " : " ranks are started (restart ") +
      std::to_string(job_.generation) + ")");
  begun_at_ = std::chrono::steady_clock::now();
  callbacks_.on_begun();
  // From here on the machine keeps its distance from one change to the next. What was waited for
  // may have been a host out of reach.
  const auto took = std::min(kMostPause, std::chrono::duration_cast<std::chrono::milliseconds>(
                                             std::chrono::steady_clock::now() - made_at_));
  events_.give(membership::MemberSaid{
      world.members.front(),
      membership::Running{world.generation, 0, static_cast<std::uint64_t>(took.count())}});
}

void FixedOwner::change(const std::string& cause) {
  starts_anew_ = true;
  watch_.refuse_commands("the ranks of the job are being started anew; try again in a moment");
  stop();
  callbacks_.on_change(cause);
}

bool FixedOwner::is_base(MemberId id) const {
  return std::any_of(machine_.members().begin(), machine_.members().end(),
                     [&](const auto& member) { return member.id == id && member.is_base; });
}

bool FixedOwner::is_up(HostId host) const {
  const auto node = nodes_.find(host);
  if (node == nodes_.end()) return false;
  const AgentLink* const link = job_.agents[node->second].link.get();
  return link != nullptr && link->hello() && !job_.agents[node->second].is_retired;
}

bool FixedOwner::has_seats(HostId host) const {
  return std::any_of(seats_.begin(), seats_.end(),
                     [&](const auto& seat) { return seat.second.host == host; });
}

bool FixedOwner::has_ranks(std::uint32_t node) const {
  return std::any_of(job_.ranks.begin(), job_.ranks.end(),
                     [&](const RankTable::Rank& rank) { return rank.node == node; });
}

std::optional<HostId> FixedOwner::host_of(std::uint32_t node) const {
  const auto found = std::find_if(nodes_.begin(), nodes_.end(),
                                  [node](const auto& one) { return one.second == node; });
  return found == nodes_.end() ? std::nullopt : std::optional(found->first);
}

}  // namespace chainmail::launch
