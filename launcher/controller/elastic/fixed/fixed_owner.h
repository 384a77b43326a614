// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Runs the WorldMachine of an elastic job whose program keeps its number of ranks. The machine's
// members are seats here, slots on hosts whose gate is open and whose agent is up; its first world
// is who becomes a rank of a usual job, numbered from 0. As soon as it wants another world, all
// ranks are to be ended, and the next controller begins with the hosts of that time.
//
//   HostsWatch    which hosts there shall be
//   PrepareGate   what a host has to pass before it counts
//   WorldTimers   the machine's clock
//   WorldLog      what is written down
//
// What becomes of ranks is nothing of this class: as in any job, the first failure ends all. One
// thread, the io_context's: events wait in a queue, so that nothing is carried out inside
// somebody's callback.

#pragma once

#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/membership/world/world_machine.h"
#include "launcher/controller/elastic/hosts/hosts_watch.h"
#include "launcher/controller/elastic/machine/event_queue.h"
#include "launcher/controller/elastic/machine/world_log.h"
#include "launcher/controller/elastic/machine/world_timers.h"
#include "launcher/controller/elastic/prepare_gate.h"
#include "launcher/controller/elastic/world_hosts.h"
#include "launcher/controller/ranks/rank_channel.h"
#include "launcher/controller/starting/agent_starts.h"
#include "launcher/controller/state/job_state.h"

namespace chainmail::launch {

class FixedOwner {
 public:
  struct Callbacks {
    /// What to tell an agent to start, but for the ranks.
    std::function<StartOrder(std::uint32_t node)> make_order;
    /// There will be no agent on this node, as if it were lost.
    std::function<void(std::uint32_t node, const std::string& cause)> on_no_agent;
    /// Agents have been told to start the ranks: from here on the job ends with them.
    std::function<void()> on_begun;
    /// Another number of ranks is due, or others.
    std::function<void(const std::string& cause)> on_change;
    /// There have not been enough hosts for too long.
    std::function<void(int code, const std::string& cause)> on_end;
  };

  /// `hosts`: of the first reading.
  FixedOwner(JobState& job, RankChannel& channel, AgentStarts& starts, const HostSet& hosts,
             Callbacks callbacks);

  void start();
  /// The job is ending, for whatever reason: nothing is an event any more.
  void stop();
  /// Some rank has ended well: what is left of the program is not begun again for others.
  void on_ended_well();
  /// The hosts as they were read last.
  [[nodiscard]] const HostSet& latest_hosts() const noexcept { return watch_.latest(); }
  /// When the ranks were started, if they were.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> begun_at() const noexcept {
    return begun_at_;
  }
  /// Names of hosts that are about to end.
  [[nodiscard]] const std::vector<std::string>& leaving() const noexcept { return leaving_; }

  // What agents say.
  void on_hello();
  /// False for a frame that is not this class's.
  bool on_frame(std::uint32_t node, const internal::Frame& frame);
  /// Of a node without ranks.
  void on_agent_lost(std::uint32_t node, const std::string& cause);
  /// Somebody ends this node's host, and has told its agent; false where no other host is left, or
  /// all of them are told.
  bool on_leaving(std::uint32_t node);
  [[nodiscard]] bool has_ranks(std::uint32_t node) const;

  /// Why lines of the logs, or of what preparations have printed, were lost; empty when none was.
  std::string finish() {
    const std::string lost = gate_.finish();
    const std::string loss = log_.finish();
    return loss.empty() ? lost : loss;
  }

 private:
  using HostId = membership::HostId;
  using MemberId = membership::MemberId;
  struct Seat {
    HostId host = 0;
    bool is_ready = false;  ///< the machine knows
  };

  void log_ranks_before();
  void handle(const membership::WorldEvent& event);

  void act(const membership::Tell& action);
  void act(const membership::Prepare& action) { gate_.on(action); }
  void act(const membership::StartMember& action);
  void act(const membership::EndMember& action);
  void act(const membership::StartWorldTimer& action) { timers_.start(action); }
  void act(const membership::LogRecord& action) { log_.record(action); }
  void act(const membership::EventRecord& action) { job_.events.record(action); }
  void act(const membership::EndJob& action);

  void start_agents();
  void settle();
  [[nodiscard]] bool is_anybody_awaited();
  [[nodiscard]] bool is_anybody_left() const;
  void lose(HostId host, const std::string& cause);
  void begin(const membership::World& world);
  void change(const std::string& cause);
  [[nodiscard]] bool is_base(MemberId id) const;
  [[nodiscard]] bool is_up(HostId host) const;
  [[nodiscard]] bool has_seats(HostId host) const;
  [[nodiscard]] std::optional<HostId> host_of(std::uint32_t node) const;

  JobState& job_;
  RankChannel& channel_;
  AgentStarts& starts_;
  Callbacks callbacks_;
  const std::vector<Host> first_hosts_;
  const std::chrono::steady_clock::time_point made_at_ = std::chrono::steady_clock::now();
  WorldHosts hosts_;
  WorldLog log_;
  membership::WorldMachine machine_;
  WorldTimers timers_;
  HostsWatch watch_;
  PrepareGate gate_;
  EventQueue events_;
  std::map<MemberId, Seat> seats_;
  std::map<HostId, std::uint32_t> nodes_;  // whose agent is up, or on its way
  std::vector<membership::HostLost>
      losses_;  // before the ranks, until all hosts have been heard of
  std::vector<std::string> leaving_;
  asio::steady_timer others_timer_;  // for hosts that are not of -n
  bool waits_for_others_ = false;
  bool has_waited_for_others_ = false;
  bool has_begun_ = false;
  bool has_ended_well_ = false;  ///< some rank
  bool starts_anew_ = false;
  std::optional<std::chrono::steady_clock::time_point> begun_at_;
  membership::WorldPtr first_;  // until it has
};

}  // namespace chainmail::launch
