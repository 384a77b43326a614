// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Runs the WorldMachine of an elastic job: makes events of what members, agents, the hosts file and
// timers have to say, and carries out what the machine asks for.
//
//   WorldHosts      hosts by the machine's numbers
//   HostsWatch      which hosts there shall be
//   PrepareGate     what a host has to pass before its first rank
//   MemberStarts    agents and ranks
//   Silence         whether the program knows of worlds at all
//   ShardBalance    when shards are to move to faster ranks
//   WorldTimers     the machine's clock
//   WorldLog        what is written down
//
// Decides nothing that the machine decides. One thread, the io_context's: events wait in a queue,
// so that nothing is carried out inside somebody's callback.

#pragma once

#include <asio/steady_timer.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/membership/world/world_machine.h"
#include "launcher/controller/elastic/hosts/hosts_watch.h"
#include "launcher/controller/elastic/machine/event_queue.h"
#include "launcher/controller/elastic/machine/world_log.h"
#include "launcher/controller/elastic/machine/world_timers.h"
#include "launcher/controller/elastic/member_starts.h"
#include "launcher/controller/elastic/prepare_gate.h"
#include "launcher/controller/elastic/shard_balance.h"
#include "launcher/controller/elastic/silence.h"
#include "launcher/controller/elastic/world_hosts.h"
#include "launcher/controller/ranks/rank_channel.h"
#include "launcher/controller/starting/agent_starts.h"
#include "launcher/controller/state/job_state.h"

namespace chainmail::launch {

class WorldOwner {
 public:
  struct Callbacks {
    /// What to tell an agent to start, but for the ranks.
    std::function<StartOrder(std::uint32_t node)> make_order;
    /// There will be no agent on this node, as if it were lost.
    std::function<void(std::uint32_t node, const std::string& cause)> on_no_agent;
    /// The last word: who still lives has been told to leave.
    std::function<void(int code, const std::string& cause)> on_end;
    /// After an end with code 0, of whom the last world consisted of: programs go on after their
    /// last step.
    std::function<void(Failure failure)> on_late_failure;
    /// The program knows nothing of worlds. Nothing is decided here any more: all ranks are to be
    /// ended, and started anew with a FixedOwner. `failure`: one has failed, for whatever reason.
    std::function<void(const std::string& cause, std::optional<Failure> failure)> on_fixed_size;
  };

  /// `hosts`: of the first reading.
  WorldOwner(JobState& job, RankChannel& channel, AgentStarts& starts, const HostSet& hosts,
             Callbacks callbacks);

  void start();
  /// The job is ending, for whatever reason: nothing is an event any more.
  void stop();
  /// The world that was announced and has at least MIN members; null between two of them.
  [[nodiscard]] const membership::World* running_world() const;
  /// The hosts as they were read last.
  [[nodiscard]] const HostSet& latest_hosts() const noexcept { return watch_.latest(); }
  /// Names of hosts that are about to end.
  [[nodiscard]] std::vector<std::string> leaving() const;

  // What agents say.
  void on_hello();
  /// False for a frame that is not this class's.
  bool on_frame(std::uint32_t node, const internal::Frame& frame);
  /// Its ranks, if it had any, count as gone already.
  void on_agent_lost(std::uint32_t node, const std::string& cause);
  /// Somebody ends this node's host, and has told its agent; false where that is the job's end,
  /// since no other host is left, or all of them are told.
  bool on_leaving(std::uint32_t node);

  // What becomes of members.
  /// Some member has said hello: its program has the library.
  void on_first_word();
  /// This one's program needs a job of fixed size.
  void on_fixed_size(std::uint32_t rank);
  void on_said(std::uint32_t rank, const membership::MemberMessage& message);
  /// It has made steps, in which a shard took so long.
  void on_shard_time(std::uint32_t rank, std::chrono::microseconds time);
  void on_ended(std::uint32_t rank, int code, const std::string& cause);
  void on_not_started(std::uint32_t rank, int code, const std::string& cause);
  void on_stopped(std::uint32_t rank, bool is_stopped);
  /// It makes no step, and the others of its world wait for it.
  void on_stalled(std::uint32_t rank, const std::string& cause);
  /// Whoever behaves like this is ended; the others go on.
  void expel(std::uint32_t rank, const std::string& cause);

  /// Why lines of the logs, or of what preparations have printed, were lost; empty when none was.
  std::string finish() {
    const std::string lost = gate_.finish();
    const std::string loss = log_.finish();
    return loss.empty() ? lost : loss;
  }

 private:
  void handle(const membership::WorldEvent& event);
  void say_that_it_waits();
  void carry_out(const membership::WorldActions& actions);
  void read(const std::vector<Host>& hosts);
  void on_hosts(const std::vector<Host>& hosts);

  void listen_for_silence();
  void hold(const membership::WorldEvent& event, std::string message);
  void give_held();
  void turn_fixed(const std::string& cause, std::optional<Failure> failure = {});

  void act(const membership::Tell& action);
  void act(const membership::Prepare& action) { gate_.on(action); }
  void act(const membership::StartMember& action);
  void act(const membership::EndMember& action);
  void act(const membership::StartWorldTimer& action) { timers_.start(action); }
  void act(const membership::LogRecord& action) { log_.record(action); }
  void act(const membership::EventRecord& action);
  void act(const membership::EndJob& action);

  void on_member_gone(const membership::MemberEnded& ended, const std::string& message);
  [[nodiscard]] bool is_anybody_left() const;
  [[nodiscard]] bool starts_anew(membership::HostId host) const;
  void look_for_false_start(int code, const std::string& cause);
  void end(int code, const std::string& cause);
  void end_stragglers();
  [[nodiscard]] bool is_of_last_world(std::uint32_t rank) const;

  JobState& job_;
  RankChannel& channel_;
  Callbacks callbacks_;
  const std::vector<Host> first_hosts_;
  WorldHosts hosts_;
  WorldLog log_;
  membership::WorldMachine machine_;
  WorldTimers timers_;
  HostsWatch watch_;
  PrepareGate gate_;
  MemberStarts starts_;
  ShardBalance balance_;
  EventQueue events_;
  std::vector<membership::StartMember> wanted_;  // of the event that is carried out
  std::set<membership::HostId> leaving_;
  std::map<std::uint32_t, std::string> ended_;  // members that are told to end, and why
  membership::Generation announced_ = 0;
  asio::steady_timer straggler_timer_;
  bool has_told_excess_ = false;
  Silence silence_;
  // Until it ends.
  bool are_hosts_held_ = false;
  std::vector<membership::WorldEvent> events_held_;
  std::vector<std::string> messages_held_;
  bool has_turned_fixed_ = false;
  bool has_ready_ = false;                            // some member has come to run()
  bool has_ended_well_ = false;                       // or ended with 0 before there was a world
  std::optional<membership::StepNumber> saved_step_;  // when the job ends for want of ranks
  bool is_finished_ = false;                          // whoever is left ends by itself
  std::optional<Failure> false_start_;  // the first end of a member, before there was a world
};

}  // namespace chainmail::launch
