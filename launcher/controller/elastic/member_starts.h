// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Starts the members of an elastic job: those of one host that are wanted at the same time by one
// agent, those that follow later by another.
//
// One thread, the io_context's.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/membership/world/world_events.h"
#include "launcher/controller/elastic/world_hosts.h"
#include "launcher/controller/ranks/rank_channel.h"
#include "launcher/controller/starting/agent_starts.h"
#include "launcher/controller/state/job_state.h"

namespace chainmail::launch {

class MemberStarts {
 public:
  struct Callbacks {
    /// What to tell an agent to start, but for the ranks.
    std::function<StartOrder(std::uint32_t node)> make_order;
    /// There will be no agent on this node, as if it were lost.
    std::function<void(std::uint32_t node, const std::string& cause)> on_no_agent;
  };

  MemberStarts(JobState& job, RankChannel& channel, AgentStarts& starts, WorldHosts& hosts,
               Callbacks callbacks);

  /// All that one event of the machine has asked for; `is_held`: not before release().
  void start(const std::vector<membership::StartMember>& members, bool is_held);
  void release();
  /// Some agent has said hello.
  void on_hello();
  /// False for a member that its agent knows of. True: it is never started.
  bool cancel(membership::MemberId member);
  /// The agent of `node` is lost.
  void forget(std::uint32_t node) { waiting_.erase(node); }
  /// The host of a node with members.
  [[nodiscard]] std::optional<membership::HostId> host_of(std::uint32_t node) const;
  /// Whether a member on `host` lives, or is about to.
  [[nodiscard]] bool has_members(membership::HostId host) const;

 private:
  std::uint32_t add_node(membership::HostId host);
  void add_member(membership::MemberId member, std::uint32_t node);
  void start_agent(std::uint32_t node);
  void send_order(std::uint32_t node, const std::vector<membership::MemberId>& members);
  void set_threads(std::uint32_t node, StartOrder& order);

  JobState& job_;
  RankChannel& channel_;
  AgentStarts& starts_;
  WorldHosts& hosts_;
  Callbacks callbacks_;
  std::map<std::uint32_t, membership::HostId> host_of_node_;
  std::map<std::uint32_t, std::vector<membership::MemberId>> waiting_;  // for their node's agent
  std::vector<std::uint32_t> held_;    // nodes whose agents are not started yet
  std::vector<std::uint32_t> places_;  // of members among those of their host
  std::uint32_t threads_ = 0;          // of each member; 0: not known yet
};

}  // namespace chainmail::launch
