// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/state/agents.h"

#include <algorithm>
#include <iterator>

#include "launcher/job/text.h"
#include "launcher/tree/tree_shape.h"

namespace chainmail::launch {
namespace {

using internal::BodyWriter;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Not heard for so long, a host that carries others may be what is wrong with them.
constexpr milliseconds kQuiet{1500};
// And for so long afterwards: what waited on its way has to arrive first.
constexpr milliseconds kCatchUp{2000};

}  // namespace

Agents::Agents(const std::vector<Host>& hosts)
    : tunnels_([this](std::uint32_t node, AgentMessage type,
                      std::string body) { send(node, type, std::move(body)); },
               [this](std::uint32_t node, AgentMessage type, std::string body) {
                 if (nodes_[node].link) nodes_[node].link->send_urgent(type, std::move(body));
               }) {
  for (const Host& host : hosts) (void)add(host);
}

std::uint32_t Agents::add(const Host& host) {
  Node& node = nodes_.emplace_back();
  node.host = host.name;
  node.asked = host;
  return size() - 1;
}

void Agents::send(std::uint32_t node, AgentMessage type, std::string body) {
  if (nodes_[node].link) nodes_[node].link->send(type, std::move(body));
}

void Agents::send_to_all(AgentMessage type, const std::string& body) {
  for (std::uint32_t node = 0; node < size(); ++node) send(node, type, body);
}

void Agents::send_to_running(AgentMessage type, const std::string& body) {
  for (const Node& node : nodes_) {
    if (node.link && !node.all_exited) node.link->send(type, body);
  }
}

void Agents::send_shared(const std::set<std::uint32_t>& nodes, AgentMessage type,
                         const std::string& text) {
  send_shared(way_to(nodes), {nodes.begin(), nodes.end()}, type, text);
}

void Agents::send_shared_to_all(AgentMessage type, const std::string& text) {
  send_shared(from_above_, from_above_, type, text);
}

// Parents stand in `way` before whom they carry.
void Agents::send_shared(const std::vector<std::uint32_t>& way,
                         const std::vector<std::uint32_t>& nodes, AgentMessage type,
                         const std::string& text) {
  const std::uint32_t number = next_shared_++;
  const SharedFrames frames = cut_shared(number, text);
  for (const std::uint32_t node : way) {
    if (nodes_[node].link) nodes_[node].link->send_shared(number, frames);
  }
  for (const std::uint32_t node : nodes) send(node, type, BodyWriter().u32(number).take());
  for (const std::uint32_t node : way) {
    send(node, AgentMessage::kSharedDrop, BodyWriter().u32(number).text("").take());
  }
}

// `nodes` and those that carry them.
std::vector<std::uint32_t> Agents::way_to(const std::set<std::uint32_t>& nodes) const {
  std::vector<bool> is_on_way(nodes_.size(), false);
  for (const std::uint32_t node : nodes) {
    std::optional<std::uint32_t> at = node;
    while (at && !is_on_way[*at]) {
      is_on_way[*at] = true;
      at = nodes_[*at].parent;
    }
  }
  std::vector<std::uint32_t> way;
  std::copy_if(from_above_.begin(), from_above_.end(), std::back_inserter(way),
               [&](std::uint32_t node) { return is_on_way[node]; });
  return way;
}

void Agents::plan(std::optional<std::uint32_t> asked, bool goes_on) {
  std::vector<bool> is_local;
  for (const Node& node : nodes_) is_local.push_back(node.start.is_local());
  const auto remote = std::count(is_local.begin(), is_local.end(), false);
  const auto parents =
      parents_of(is_local, tree_width(asked, static_cast<std::size_t>(remote), goes_on));
  for (std::uint32_t node = 0; node < size(); ++node) {
    nodes_[node].parent = parents[node];
    if (parents[node]) nodes_[*parents[node]].children.push_back(node);
  }
}

void Agents::take_from_parent(std::uint32_t node) {
  std::erase(nodes_[*nodes_[node].parent].children, node);
  nodes_[node].parent.reset();
  nodes_[node].starts = 0;
}

void Agents::settle() {
  from_above_.clear();
  for (std::uint32_t node = 0; node < size(); ++node) {
    if (!nodes_[node].parent) from_above_.push_back(node);
  }
  for (std::size_t at = 0; at < from_above_.size(); ++at) {
    const auto& children = nodes_[from_above_[at]].children;
    from_above_.insert(from_above_.end(), children.begin(), children.end());
  }
}

bool Agents::has_tree() const {
  return std::any_of(nodes_.begin(), nodes_.end(),
                     [](const Node& node) { return node.parent.has_value(); });
}

std::string Agents::children_text(std::uint32_t node) const {
  std::vector<std::string> hosts;
  for (const std::uint32_t child : nodes_[node].children) hosts.push_back(nodes_[child].host);
  if (hosts.empty()) return "";
  return (hosts.size() == 1 ? "; host " + hosts.front() + " was"
                            : "; hosts " + listed(hosts) + " were") +
         " reached through it (--tree no reaches all from here)";
}

bool Agents::has_silent_ancestor(std::uint32_t node) {
  const auto now = steady_clock::now();
  for (auto at = nodes_[node].parent; at; at = nodes_[*at].parent) {
    Node& parent = nodes_[*at];
    if (parent.link && parent.link->silence() > kQuiet) parent.catches_up_until = now + kCatchUp;
    if (now < parent.catches_up_until) return true;
  }
  return false;
}

std::vector<std::string> Agents::without_carried(const std::set<std::uint32_t>& nodes) const {
  std::vector<std::string> hosts;
  for (const std::uint32_t node : nodes) {
    std::optional<std::uint32_t> above = nodes_[node].parent;
    while (above && !nodes.contains(*above)) above = nodes_[*above].parent;
    if (!above) hosts.push_back(nodes_[node].host);
  }
  return hosts;
}

void Agents::lose_children_of(std::uint32_t node) {
  const std::string reason =
      "its connection went through host " + nodes_[node].host + ", which is lost";
  for (const std::uint32_t other : nodes_[node].children) {
    if (nodes_[other].link) nodes_[other].link->lose_parent(reason);
  }
}

bool Agents::has_living_children(std::uint32_t node) const {
  const std::vector<std::uint32_t>& children = nodes_[node].children;
  return std::any_of(children.begin(), children.end(), [this](std::uint32_t other) {
    return nodes_[other].link && !nodes_[other].link->is_reaped();
  });
}

void Agents::tell_to_leave(bool all) {
  for (std::uint32_t node = 0; node < size(); ++node) {
    AgentLink* link = nodes_[node].link.get();
    if (link != nullptr && !link->is_leaving() && (all || !has_living_children(node)))
      link->leave();
  }
}

void Agents::retire(std::uint32_t number) {
  Node& node = nodes_[number];
  node.is_retired = true;
  node.all_exited = true;
  if (!node.link || node.link->is_leaving()) return;
  if (!node.link->hello()) node.link->kill_process();
  node.link->leave();
}

void Agents::set_link_aside(std::uint32_t node) {
  if (nodes_[node].link && !nodes_[node].link->reap()) {
    set_aside_.push_back(std::move(nodes_[node].link));
  }
}

void Agents::reap() {
  for (Node& node : nodes_) {
    if (!node.link || !node.link->reap() || !node.is_retired) continue;
    node.link.reset();
    // Of an elastic job there may be thousands; some 10 KiB each.
    AgentStart rest;
    rest.marker = node.start.marker;
    std::swap(node.start, rest);
  }
  std::erase_if(set_aside_, [](const auto& link) { return link->reap(); });
}

bool Agents::are_reaped() const {
  return std::none_of(nodes_.begin(), nodes_.end(),
                      [](const Node& node) { return node.link && !node.link->is_reaped(); });
}

std::vector<Host> Agents::hosts_with_odd_end() const {
  std::vector<Host> hosts;
  for (const Node& node : nodes_) {
    const bool is_orderly =
        node.starts <= 1 && (!node.link || (node.link->is_reaped() && node.link->exit_code() == 0));
    if (!is_orderly) hosts.push_back(node.asked);
  }
  return hosts;
}

void Agents::drop_links() {
  set_aside_.clear();
  for (Node& node : nodes_) node.link.reset();
}

}  // namespace chainmail::launch
