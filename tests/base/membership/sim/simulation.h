// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A whole elastic job in one object: the launcher's machine, the members' machines, their agents,
// the links between them, and the disk. Nothing happens but by apply(), which carries out one of
// the enabled() choices, so whoever chooses is the scheduler: seeded.h by chance, explore.h all.
//
// What can be wrong is checked after every choice (violation()). Copying it copies the job: the
// exhaustive search does. One thread.

#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/membership/member/last_will.h"
#include "base/membership/member/member_machine.h"
#include "base/membership/world/world_machine.h"
#include "tests/base/membership/sim/exchange.h"
#include "tests/base/membership/sim/history.h"

namespace chainmail::membership::sim {

class TraceSink;

struct Setup {
  WorldOptions options;
  MemberOptions member;
  ExchangeShape shape;
  std::vector<HostLine> hosts;
  StepNumber last_step = 1'000'000;    ///< the program wants no more
  bool returns_at_once = false;        ///< the program's function, after a commit
  bool has_time = true;                ///< timers elapse when they are due; otherwise at any moment
  bool drops_at_crash = false;         ///< also what is in flight of one that its agent kills
  bool has_accusations = true;         ///< peers notice a death before the launcher says so
  std::uint32_t ignored_timers = 0;    ///< bits of WorldTimer: these never elapse
  std::uint32_t immediate_timers = 0;  ///< ... and these elapse as soon as they are started
};

/// Something that can happen next.
struct Choice {
  enum class Kind : std::uint8_t {
    kPacket,        ///< a: index of the packet
    kToMember,      ///< a: member
    kToLauncher,    ///< a: member
    kComplete,      ///< a: member; of a world of one
    kProgramReady,  ///< a: member, b: 1 with another fingerprint
    kReturn,        ///< a: member
    kLoad,          ///< a: member; from the checkpoint
    kWritten,       ///< a: member; SaveState is done
    kGrace,         ///< a: member
    kNoticeEof,     ///< a: member
    kWill,          ///< a: host, b: agent; it chooses who writes
    kKill,          ///< a: member; EndMember has arrived
    kAccuse,        ///< a: member, b: peer
    kHostLost,      ///< a: host; the launcher's lease ends
    kPrepared,      ///< a: host, b: 1 it failed, 2 it was not reached
    kTimer,         ///< a: index of the timer
    // Faults, and what people do.
    kCrash,       ///< a: member, b: 1 what it had sent is lost
    kStop,        ///< a: member
    kContinue,    ///< a: member
    kSlow,        ///< a: member, b: for how many ms
    kHang,        ///< a: member; its program does not return from the step that it commits next
    kCutData,     ///< a: host, b: host; from a to b
    kCutControl,  ///< a: host, b: 1 to it, 2 from it, 3 both
    kEdit,        ///< the file that set_file() prepared
    kLeaving,     ///< a: host
    kRebalance,   ///< a, b: of two numbers the weights are made
    kCheckpoint,  ///< a: member
    kLauncherDies,
    kResume,
  };
  Kind kind = Kind::kPacket;
  std::uint16_t a = 0;
  std::uint16_t b = 0;
};

class Simulation {
 public:
  struct Process {
    Process(MemberId id, HostId on, const Setup& setup)
        : machine(id, setup.member), exchange(setup.shape), host(on) {}

    MemberMachine machine;
    Exchange exchange;
    HostId host;
    std::uint16_t agent = 0;
    bool is_alive = true;
    bool is_stopped = false;
    bool is_hanging = false;
    bool is_accounted = false;  ///< its loss is in the log
    bool has_left = false;      ///< it was told to, or wrote its will
    bool is_base = false;
    bool is_hurt = false;  ///< by a fault, or it accused somebody who was: it may be LOST
    bool is_launcher_gone = false;
    WorldPtr world;             ///< of its group
    std::uint32_t commits = 0;  ///< in that world
    std::uint64_t state = 0;
    StepNumber step = 0;
    // Waiting for their moment.
    bool is_building = true;
    bool is_returning = false;
    bool is_saving = false;
    bool is_noticing_eof = false;
    bool is_being_killed = false;
    bool is_grace_running = false;
    std::optional<Start> fetching;
    std::optional<Will> will;
    std::uint32_t accused = 0;  ///< places in the world of this generation
    std::int64_t slow_until = 0;
  };
  struct Timer {
    WorldTimer timer = WorldTimer::kWindow;
    std::uint32_t subject = 0;
    std::int64_t due = 0;
  };
  struct Host {
    bool is_cut_to = false;  ///< from the launcher
    bool is_cut_from = false;
    bool is_lost = false;  ///< said to the launcher
    bool is_leaving = false;
    bool is_preparing = false;
    std::uint16_t agent = 0;        ///< counts the agents that the launcher has started there
    std::uint32_t wills = 0;        ///< of which agents somebody writes the last will
    std::uint32_t cut_data_to = 0;  ///< hosts
  };

  explicit Simulation(const Setup& setup, TraceSink* trace = nullptr);

  /// All that can happen now without a fault.
  void enabled(std::vector<Choice>& choices) const;
  void apply(const Choice& choice);
  /// Where nothing is enabled: to the next timer or the end of a delay. False where there is none.
  bool skip_time();
  void pass_time(std::int64_t ms) { now_ += ms; }
  void set_file(std::vector<HostLine> lines) { file_ = std::move(lines); }

  [[nodiscard]] const std::string& violation() const { return history_.violation(); }
  [[nodiscard]] const WorldMachine& world() const { return *world_; }
  [[nodiscard]] bool is_launcher_alive() const { return is_launcher_alive_; }
  [[nodiscard]] const std::vector<Process>& processes() const { return processes_; }
  [[nodiscard]] const std::vector<Host>& hosts() const { return hosts_; }
  [[nodiscard]] const std::vector<HostLine>& file() const { return file_; }
  [[nodiscard]] const History& history() const { return history_; }
  [[nodiscard]] bool is_anyone_alive() const;
  [[nodiscard]] bool is_anyone_hanging() const;
  /// The others wait in a collective for one that hangs, which is the program's affair: no member
  /// waits for the next world.
  [[nodiscard]] bool is_held_up() const;
  /// The job has ended: EndJob, or the launcher is gone and nobody is left.
  [[nodiscard]] bool is_over() const;
  [[nodiscard]] std::uint64_t digest() const;

 private:
  void on_world(const WorldEvent& event);
  void on_member(MemberId id, const MemberEvent& event);

  void perform(const Tell& action);
  void perform(const Prepare& action);
  void perform(const StartMember& action);
  void perform(const EndMember& action);
  void perform(const StartWorldTimer& action);
  void perform(const LogRecord& action);
  void perform(const EventRecord& /*action*/) {}
  void perform(const EndJob& action);

  void perform(Process& process, const Send& action);
  void perform(Process& process, const Fence& action);
  void perform(Process& process, const Connect& action);
  void perform(Process& process, const FetchState& action);
  void perform(Process& process, const BeginStep& action);
  void perform(Process& process, const Commit& action);
  void perform(Process& process, const SaveState& action);
  void perform(Process& process, const ReportWill& action);
  void perform(Process& process, const StartGrace& action);
  void perform(Process& process, const Exit& action);

  void deliver(std::size_t index);
  void deliver_to_member(MemberId id);
  void deliver_to_launcher(MemberId id);
  void complete(MemberId id);
  void load(MemberId id);
  void accuse(MemberId id, MemberId peer);
  void choose_will_writer(HostId host, std::uint16_t agent);
  void lose_host(HostId host);
  void rebalance(std::uint32_t even, std::uint32_t odd);
  void end_launcher();
  void cut_data(HostId from, HostId to);
  void cut_control(HostId host, bool to, bool from);
  [[nodiscard]] bool is_deliverable(const Packet& packet) const;
  [[nodiscard]] bool may_elapse(const Timer& timer) const;
  [[nodiscard]] bool is_suspect(const Process& process, MemberId peer) const;
  void end_process(Process& process, bool drops, int code);
  void run_on(MemberId id);
  void read_file();
  void tell_launcher(const Process& process, WorldEvent event);
  void enabled_of(const Process& process, std::vector<Choice>& choices) const;
  [[nodiscard]] bool is_slow(const Process& process) const { return process.slow_until > now_; }

  void resume();
  void end_host_channel(HostId host);
  [[nodiscard]] bool is_will_due(HostId host, std::uint16_t agent) const;
  [[nodiscard]] bool may_end_grace(const Process& process) const;

  const Setup* setup_;
  TraceSink* trace_;

  struct ToMember {
    MemberId to;
    LauncherMessage message;
  };
  struct ToLauncher {
    MemberId from;
    WorldEvent event;
  };

  std::optional<WorldMachine> world_;
  bool is_launcher_alive_ = true;
  std::vector<Process> processes_;  // by member id
  std::vector<Host> hosts_;         // by host id
  std::vector<Packet> packets_;
  std::vector<ToMember> to_members_;
  std::vector<ToLauncher> to_launcher_;
  std::vector<Timer> timers_;
  std::vector<Timer> elapsed_;  // at once, after the actions that started them
  std::vector<HostLine> file_;
  std::vector<std::string> addresses_;  // by host id
  std::int64_t now_ = 0;
  History history_;
  std::optional<StepNumber> before_;  // what the member had committed before the event
  WorldActions world_actions_;
  MemberActions member_actions_;
};

}  // namespace chainmail::membership::sim
