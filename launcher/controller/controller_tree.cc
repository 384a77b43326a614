// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Agents that start further agents: the launcher stays the only one who decides anything; a host in
// the middle runs commands for it and carries bytes.

#include <algorithm>
#include <asio/post.hpp>

#include "launcher/controller/controller.h"
#include "launcher/remote/bootstrap.h"
#include "launcher/remote/rsh_command.h"
#include "launcher/tree/tree_shape.h"

namespace chainmail::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Not heard for so long, a host that carries others may be what is wrong with them.
constexpr milliseconds kQuiet{1500};
// And for so long afterwards: what waited on its way has to arrive first.
constexpr milliseconds kCatchUp{2000};

// What the remote shell said last, or how it ended.
std::string last_word(const AgentLink& link) {
  std::string text = link.error_output();
  while (!text.empty() && static_cast<unsigned char>(text.back()) <= ' ') text.pop_back();
  std::string line = text.substr(text.find_last_of("\r\n") + 1);
  // Whatever a machine sends must not act on the user's terminal.
  line.erase(std::remove_if(line.begin(), line.end(),
                            [](char c) { return static_cast<unsigned char>(c) < ' '; }),
             line.end());
  return line.empty() ? link.start().command.front() + " " + link.exit_text() : line;
}

}  // namespace

void Controller::plan_tree() {
  std::vector<bool> is_local;
  for (const Node& node : nodes_) is_local.push_back(node.start.is_local());
  const auto remote = std::count(is_local.begin(), is_local.end(), false);
  const std::uint32_t width = tree_width(options_.tree_width, static_cast<std::size_t>(remote),
                                         is_ssh(remote_shell_of(options_).front()));
  const auto carriers = carriers_of(is_local, width);
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    nodes_[node].carrier = carriers[node];
    if (carriers[node]) nodes_[*carriers[node]].carried.push_back(node);
  }
}

void Controller::start_carried_by(std::uint32_t node) {
  for (const std::uint32_t other : nodes_[node].carried) {
    if (phase_ != Phase::kStarting) return;
    start_agent(other);
  }
}

// Users set up keys from here to every host; from host to host is a hope.
bool Controller::start_from_here(std::uint32_t node) {
  const AgentLink& link = *nodes_[node].link;
  if (phase_ != Phase::kStarting || !nodes_[node].carrier ||
      link.error_output().find(kBootstrapSays) != std::string::npos) {
    return false;  // the host was reached, and is what is wrong
  }
  if (!std::exchange(has_told_detour_, true)) {
    const std::string& carrier = placement_.nodes[*nodes_[node].carrier].name;
    output_->say("launcher: host " + placement_.nodes[node].name + " cannot be reached from host " +
                 carrier + " (" + last_word(link) +
                 "); it is started from here, and so is every other host with which that happens. "
                 "To start many hosts faster, let the hosts log in to each other (keys, or "
                 "--rsh-args -A, and their host keys known); --tree no does not try");
  }
  std::erase(nodes_[*nodes_[node].carrier].carried, node);
  nodes_[node].carrier.reset();
  nodes_[node].starts = 0;
  asio::post(io_, [this, node] {
    if (phase_ == Phase::kStarting) start_agent(node);
  });
  return true;
}

// The hosts behind a lost one are its victims, and no cause of anything.
void Controller::lose_carried_by(std::uint32_t node) {
  const std::string reason =
      "its connection went through host " + placement_.nodes[node].name + ", which is lost";
  for (const std::uint32_t other : nodes_[node].carried) {
    if (nodes_[other].link) nodes_[other].link->lose_carrier(reason);
  }
}

// "; n3, n4 and 7 more were connected through it".
std::string Controller::carried_text(std::uint32_t node) const {
  constexpr std::size_t kMost = 8;
  const std::vector<std::uint32_t>& carried = nodes_[node].carried;
  if (carried.empty()) return "";
  std::string text = carried.size() == 1 ? "; host " : "; hosts ";
  for (std::size_t i = 0; i < std::min(carried.size(), kMost); ++i) {
    text += (i == 0 ? "" : ", ") + placement_.nodes[carried[i]].name;
  }
  if (carried.size() > kMost) text += " and " + std::to_string(carried.size() - kMost) + " more";
  return text + (carried.size() == 1 ? " was" : " were") +
         " reached through it (--tree no reaches all from here)";
}

bool Controller::carries_others(std::uint32_t node) const {
  const std::vector<std::uint32_t>& carried = nodes_[node].carried;
  return std::any_of(carried.begin(), carried.end(), [this](std::uint32_t other) {
    return nodes_[other].link && !nodes_[other].link->is_reaped();
  });
}

// A host behind others is judged by its silence only when those have been heard.
bool Controller::is_behind_silent_host(std::uint32_t node) {
  const auto now = steady_clock::now();
  for (auto at = nodes_[node].carrier; at; at = nodes_[*at].carrier) {
    Node& carrier = nodes_[*at];
    if (carrier.link && carrier.link->silence() > kQuiet) carrier.catches_up_until = now + kCatchUp;
    if (now < carrier.catches_up_until) return true;
  }
  return false;
}

// Last come those through whom others still leave.
void Controller::tell_to_leave(bool all) {
  for (std::uint32_t node = 0; node < nodes_.size(); ++node) {
    AgentLink* link = nodes_[node].link.get();
    if (link != nullptr && !link->is_leaving() && (all || !carries_others(node))) link->leave();
  }
}

}  // namespace chainmail::launch
