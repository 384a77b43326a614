// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The hosts of a job, the agent on each, and the ways to them: which host is the parent of which
// other (--tree), what goes to one host, to all, or once over each connection on the way to many.
// Who owns a part of the job (MPI, staging, ...) reaches agents through this class alone.
//
// Decides nothing: no message is read and no agent started or ended here. One thread, the
// io_context's.

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/controller/state/agent_link.h"
#include "launcher/job/host.h"
#include "launcher/tree/tunnels.h"

namespace chainmail::launch {

class Agents {
 public:
  struct Node {
    std::string host;
    Host asked;  ///< as the hosts file has it
    AgentStart start;
    std::unique_ptr<AgentLink> link;  ///< none before its first start, and where it is retired
    bool all_exited = false;          ///< its ranks, and whatever else it was told to run
    bool is_retired = false;          ///< nobody needs it any more
    int starts = 0;
    std::optional<std::uint32_t> parent;  ///< whose agent starts this one
    std::vector<std::uint32_t> children;  ///< whom this one starts
    std::chrono::steady_clock::time_point catches_up_until;
  };

  explicit Agents(const std::vector<Host>& hosts);
  /// One more, which has no rank yet; its number. Places of those before stay where they are.
  std::uint32_t add(const Host& host);

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(nodes_.size()); }
  Node& operator[](std::uint32_t node) { return nodes_[node]; }
  const Node& operator[](std::uint32_t node) const { return nodes_[node]; }
  auto begin() noexcept { return nodes_.begin(); }
  auto end() noexcept { return nodes_.end(); }
  auto begin() const noexcept { return nodes_.begin(); }
  auto end() const noexcept { return nodes_.end(); }
  Tunnels& tunnels() noexcept { return tunnels_; }

  /// Nothing is sent where no agent was started.
  void send(std::uint32_t node, AgentMessage type, std::string body);
  void send_to_all(AgentMessage type, const std::string& body);
  /// To those with ranks that still run.
  void send_to_running(AgentMessage type, const std::string& body);
  /// A text for many, over each connection once, and then `type` with the number under which agents
  /// find it (launcher/tree/shared_texts.h). `nodes`: who is meant. After settle().
  void send_shared(const std::set<std::uint32_t>& nodes, AgentMessage type,
                   const std::string& text);
  void send_shared_to_all(AgentMessage type, const std::string& text);

  /// Who starts whom. `asked` is --tree; `goes_on`: the remote shell can be expected to work on the
  /// hosts themselves. After each node's `start` is known.
  void plan(std::optional<std::uint32_t> asked, bool goes_on);
  /// This node is started from here after all.
  void take_from_parent(std::uint32_t node);
  /// All have said hello: nobody's way changes any more.
  void settle();
  [[nodiscard]] bool has_tree() const;
  /// "; hosts n3, n4 and 7 more were reached through it".
  [[nodiscard]] std::string children_text(std::uint32_t node) const;
  /// A host behind others is judged by its silence only when those have been heard.
  [[nodiscard]] bool has_silent_ancestor(std::uint32_t node);
  /// The hosts of those nodes that are not reached through another of them.
  [[nodiscard]] std::vector<std::string> without_carried(
      const std::set<std::uint32_t>& nodes) const;
  /// The hosts behind a lost one are its victims, and no cause of anything.
  void lose_children_of(std::uint32_t node);

  /// Tells agents to leave; those through whom others still leave only with `all`.
  void tell_to_leave(bool all);
  /// Nobody needs this agent any more: it leaves now, and its link goes when its process has ended.
  void retire(std::uint32_t node);
  /// Of a remote shell that was given up, somebody has to hear the end.
  void set_link_aside(std::uint32_t node);
  /// Looks whose process has ended.
  void reap();
  [[nodiscard]] bool are_reaped() const;
  /// Whose agent was started and has not left as it was told to.
  [[nodiscard]] std::vector<Host> hosts_with_odd_end() const;
  /// Their processes are no longer waited for.
  void drop_links();

 private:
  bool has_living_children(std::uint32_t node) const;
  std::vector<std::uint32_t> way_to(const std::set<std::uint32_t>& nodes) const;
  void send_shared(const std::vector<std::uint32_t>& way, const std::vector<std::uint32_t>& nodes,
                   AgentMessage type, const std::string& text);

  Tunnels tunnels_;  // outlives the links
  std::deque<Node> nodes_;
  std::vector<std::unique_ptr<AgentLink>> set_aside_;
  std::vector<std::uint32_t> from_above_;  // nodes, each after the one that carries it
  std::uint32_t next_shared_ = 0;
};

}  // namespace chainmail::launch
