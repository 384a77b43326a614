// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What can happen in a Simulation, and what happens.

#include <algorithm>
#include <array>
#include <utility>

#include "tests/base/membership/sim/simulation.h"
#include "tests/base/membership/sim/trace_sink.h"

namespace chainmail::membership::sim {
namespace {

using Kind = Choice::Kind;

std::uint16_t short_of(std::size_t number) { return static_cast<std::uint16_t>(number); }

}  // namespace

bool Simulation::is_deliverable(const Packet& packet) const {
  const Process& to = processes_[packet.to];
  if (to.is_stopped || is_slow(to) || is_slow(processes_[packet.from])) return false;
  if ((hosts_[processes_[packet.from].host].cut_data_to >> to.host & 1U) != 0) return false;
  // Of a world that the receiver does not know yet, its sockets are not connected.
  if (packet.generation > to.exchange.generation()) return false;
  // A donor gives its state between two calls of the program's function.
  return packet.kind != Packet::Kind::kFetch || !to.is_returning;
}

bool Simulation::is_suspect(const Process& process, MemberId id) const {
  const Process& peer = processes_[id];
  if (!peer.is_alive) return !peer.has_left;
  return (hosts_[process.host].cut_data_to >> peer.host & 1U) != 0 ||
         (hosts_[peer.host].cut_data_to >> process.host & 1U) != 0;
}

bool Simulation::may_elapse(const Timer& timer) const {
  return !setup_->has_time || timer.due <= now_;
}

void Simulation::enabled(std::vector<Choice>& choices) const {
  choices.clear();
  // The first packet of each link.
  static_assert(kMostRanks <= 8);
  std::array<std::uint64_t, 64> seen{};
  for (std::size_t i = 0; i < packets_.size(); ++i) {
    const Packet& packet = packets_[i];
    std::uint64_t& links = seen[packet.from % 64U];
    const std::uint64_t bit = std::uint64_t{1} << (packet.to % 64U);
    if ((links & bit) != 0) continue;
    links |= bit;
    if (is_deliverable(packet)) choices.push_back({Kind::kPacket, short_of(i), 0});
  }
  std::uint64_t told = 0;
  for (const ToMember& one : to_members_) {
    const std::uint64_t bit = std::uint64_t{1} << (one.to % 64U);
    if ((told & bit) != 0) continue;
    told |= bit;
    const Process& process = processes_[one.to];
    if (process.is_stopped || process.is_noticing_eof || is_slow(process)) continue;
    choices.push_back({Kind::kToMember, short_of(one.to), 0});
  }
  if (is_launcher_alive_) {
    told = 0;
    for (const ToLauncher& one : to_launcher_) {
      const std::uint64_t bit = std::uint64_t{1} << (one.from % 64U);
      if ((told & bit) != 0) continue;
      told |= bit;
      if (!is_slow(processes_[one.from])) {
        choices.push_back({Kind::kToLauncher, short_of(one.from), 0});
      }
    }
    for (std::size_t i = 0; i < timers_.size(); ++i) {
      if (may_elapse(timers_[i])) choices.push_back({Kind::kTimer, short_of(i), 0});
    }
  }
  for (const Process& process : processes_) {
    if (process.is_alive) enabled_of(process, choices);
  }
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    const Host& host = hosts_[i];
    if (is_launcher_alive_ && (host.is_cut_from || host.is_cut_to) && !host.is_lost) {
      choices.push_back({Kind::kHostLost, short_of(i), 0});
    }
    if (is_launcher_alive_ && host.is_preparing && !host.is_cut_from) {
      choices.push_back({Kind::kPrepared, short_of(i), 0});
    }
    for (std::uint16_t agent = 0; agent <= host.agent; ++agent) {
      if (is_will_due(static_cast<HostId>(i), agent)) {
        choices.push_back({Kind::kWill, short_of(i), agent});
      }
    }
  }
}

void Simulation::enabled_of(const Process& process, std::vector<Choice>& choices) const {
  const std::uint16_t id = short_of(process.machine.id());
  if (process.is_being_killed ||
      (process.is_stopped && (process.is_noticing_eof || process.is_launcher_gone))) {
    choices.push_back({Kind::kKill, id, 0});
  }
  if (process.is_stopped || is_slow(process)) return;
  if (process.is_building) choices.push_back({Kind::kProgramReady, id, 0});
  if (process.is_returning && !process.is_hanging) choices.push_back({Kind::kReturn, id, 0});
  if (process.is_saving) choices.push_back({Kind::kWritten, id, 0});
  const bool is_gone_to = hosts_[process.host].is_cut_to && !process.is_launcher_gone;
  if (process.is_noticing_eof || is_gone_to) choices.push_back({Kind::kNoticeEof, id, 0});
  if (process.fetching && process.fetching->donors.empty()) choices.push_back({Kind::kLoad, id, 0});
  if (process.is_grace_running && may_end_grace(process)) choices.push_back({Kind::kGrace, id, 0});
  if (!process.exchange.is_connected()) return;
  const auto& members = process.world->members;
  if (members.size() == 1) {
    if (process.exchange.is_complete()) choices.push_back({Kind::kComplete, id, 0});
    return;
  }
  if (process.exchange.generation() != process.machine.generation()) return;
  if (!setup_->has_accusations) return;
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    if (members[rank] == id || (process.accused >> rank & 1U) != 0) continue;
    if (is_suspect(process, members[rank])) {
      choices.push_back({Kind::kAccuse, id, short_of(members[rank])});
    }
  }
}

// All members of the agent have answered, but for those that cannot.
bool Simulation::is_will_due(HostId id, std::uint16_t agent) const {
  if ((hosts_[id].wills >> agent & 1U) != 0) return false;
  bool is_any = false;
  for (const Process& process : processes_) {
    if (!process.is_alive || process.host != id || process.agent != agent) continue;
    if (process.is_stopped) continue;
    if (process.is_noticing_eof) return false;
    if (process.is_launcher_gone && !process.will) return false;
    is_any |= process.is_launcher_gone;
  }
  return is_any;
}

// The agent lets its members live until the will is written.
bool Simulation::may_end_grace(const Process& process) const {
  if (!process.will) return true;
  if ((hosts_[process.host].wills >> process.agent & 1U) == 0) return false;
  return std::none_of(processes_.begin(), processes_.end(), [&](const Process& other) {
    return other.is_saving && other.host == process.host && other.agent == process.agent;
  });
}

void Simulation::deliver(std::size_t index) {
  const Packet packet = packets_[index];
  packets_.erase(packets_.begin() + static_cast<std::ptrdiff_t>(index));
  Process& to = processes_[packet.to];
  if (packet.segment != to.exchange.segment()) return;
  if (packet.generation != to.exchange.generation()) {
    return history_.fail("a message of generation " + std::to_string(packet.generation) +
                         " was accepted in " + std::to_string(to.exchange.generation()));
  }
  switch (packet.kind) {
    case Packet::Kind::kPiece:
    case Packet::Kind::kResult:
      to.exchange.receive(packet, packets_);
      run_on(packet.to);
      return;
    case Packet::Kind::kFetch: {
      Packet state = packet;
      state.kind = Packet::Kind::kState;
      std::swap(state.from, state.to);
      state.step = static_cast<std::uint32_t>(to.step);
      state.value = to.state;
      state.position = to.machine.position();
      state.flag = to.machine.is_finished();
      packets_.push_back(state);
      return;
    }
    case Packet::Kind::kState:
      if (!to.fetching) return;
      if (packet.step != to.fetching->step || packet.value != history_.state_at(packet.step)) {
        history_.fail("member " + std::to_string(packet.from) + " gave a wrong state");
      }
      to.fetching.reset();
      to.state = packet.value;
      to.step = packet.step;
      on_member(packet.to,
                StateFetched{packet.generation, packet.step, packet.position, packet.flag, 100});
      run_on(packet.to);
      return;
  }
}

// One case per kind; what takes more than a few lines has a function.
void Simulation::apply(const Choice& choice) {
  history_.add_to_trace((static_cast<std::uint64_t>(choice.kind) << 32U) + choice.a * 65536U +
                        choice.b);
  const auto process = [&]() -> Process& { return processes_[choice.a]; };
  switch (choice.kind) {
    case Kind::kPacket:
      return deliver(choice.a);
    case Kind::kToMember:
      return deliver_to_member(choice.a);
    case Kind::kToLauncher:
      return deliver_to_launcher(choice.a);
    case Kind::kComplete:
      return complete(choice.a);
    case Kind::kProgramReady:
      process().is_building = false;
      return on_member(choice.a, ProgramReady{choice.b});
    case Kind::kReturn:
      process().is_returning = false;
      on_member(choice.a, StepReturned{process().step >= setup_->last_step});
      return run_on(choice.a);
    case Kind::kLoad:
      return load(choice.a);
    case Kind::kWritten:
      process().is_saving = false;
      history_.save(process().step, process().state);
      return on_member(choice.a, StateSaved{});
    case Kind::kGrace:
      process().is_grace_running = false;
      return on_member(choice.a, GraceElapsed{});
    case Kind::kNoticeEof:
      process().is_noticing_eof = process().is_building = false;
      process().is_launcher_gone = true;
      return on_member(choice.a, LauncherGone{});
    case Kind::kWill:
      return choose_will_writer(choice.a, choice.b);
    case Kind::kKill:
      process().is_hurt = true;
      return end_process(process(), setup_->drops_at_crash, 137);
    case Kind::kAccuse:
      return accuse(choice.a, choice.b);
    case Kind::kHostLost:
      return lose_host(choice.a);
    case Kind::kPrepared:
      hosts_[choice.a].is_preparing = false;
      return on_world(PrepareEnded{choice.a, choice.b == 0, "exited", choice.b == 2});
    case Kind::kTimer: {
      const Timer timer = timers_[choice.a];
      timers_.erase(timers_.begin() + choice.a);
      return on_world(WorldTimerElapsed{timer.timer, timer.subject});
    }
    case Kind::kCrash:
      process().is_hurt = true;
      return end_process(process(), choice.b != 0, 137);
    case Kind::kStop:
    case Kind::kContinue:
      process().is_hurt = true;
      process().is_stopped = choice.kind == Kind::kStop;
      return tell_launcher(process(), MemberStopped{choice.a, process().is_stopped});
    case Kind::kSlow:
      process().slow_until = now_ + choice.b;
      return;
    case Kind::kHang:
      process().is_hurt = process().is_hanging = true;
      return;
    case Kind::kCutData:
      return cut_data(choice.a, choice.b);
    case Kind::kCutControl:
      return cut_control(choice.a, (choice.b & 1U) != 0, (choice.b & 2U) != 0);
    case Kind::kEdit:
      return read_file();
    case Kind::kLeaving:
      hosts_[choice.a].is_leaving = true;
      return on_world(HostLeaving{choice.a});
    case Kind::kRebalance:
      return rebalance(choice.a, choice.b);
    case Kind::kCheckpoint:
      return history_.save(process().step, process().state);
    case Kind::kLauncherDies:
      return end_launcher();
    case Kind::kResume:
      return resume();
  }
}

void Simulation::deliver_to_member(MemberId id) {
  const auto one = std::find_if(to_members_.begin(), to_members_.end(),
                                [&](const ToMember& each) { return each.to == id; });
  const Told told{std::move(one->message)};
  to_members_.erase(one);
  on_member(id, told);
  run_on(id);
}

void Simulation::deliver_to_launcher(MemberId id) {
  const auto one = std::find_if(to_launcher_.begin(), to_launcher_.end(),
                                [&](const ToLauncher& each) { return each.from == id; });
  const WorldEvent event = std::move(one->event);
  to_launcher_.erase(one);
  on_world(event);
}

// In a world of one, where no packet ends the step.
void Simulation::complete(MemberId id) {
  Process& process = processes_[id];
  on_member(
      id, Exchanged{process.exchange.generation(), process.step + 1, process.exchange.is_wanted()});
  process.exchange.finish();
  run_on(id);
}

void Simulation::load(MemberId id) {
  Process& process = processes_[id];
  const StepNumber step = history_.load(process.exchange.generation());
  if (step < process.fetching->step) history_.fail("an older checkpoint than was known of");
  process.fetching.reset();
  process.state = history_.state_at(step);
  process.step = step;
  on_member(id, StateFetched{process.exchange.generation(), step, step * setup_->member.batch,
                             step >= setup_->last_step, 0});
  run_on(id);
}

void Simulation::choose_will_writer(HostId host, std::uint16_t agent) {
  std::vector<Will> wills;
  for (const Process& each : processes_) {
    if (!each.is_alive || each.host != host || each.agent != agent) continue;
    if (each.will && !each.is_stopped) wills.push_back(*each.will);
  }
  hosts_[host].wills |= 1U << agent;
  if (const auto writer = choose_writer(wills)) on_member(*writer, WriteWill{});
}

void Simulation::accuse(MemberId id, MemberId peer) {
  Process& process = processes_[id];
  process.accused |= 1U << *process.world->rank_of(peer);
  process.is_hurt = true;
  processes_[peer].is_hurt = true;
  on_member(id, PeerFailed{process.exchange.generation(), peer});
}

void Simulation::lose_host(HostId id) {
  hosts_[id].is_lost = true;
  std::erase_if(to_launcher_, [&](auto& one) { return processes_[one.from].host == id; });
  end_host_channel(id);
  on_world(HostLost{id, "no sign of its agent"});
}

void Simulation::rebalance(std::uint32_t even, std::uint32_t odd) {
  Rebalance event{world_->world().generation, {}};
  for (std::size_t rank = 0; rank < world_->world().members.size(); ++rank) {
    event.weights.push_back((rank % 2 == 0 ? even : odd) + 1U);
  }
  on_world(event);
}

void Simulation::end_launcher() {
  is_launcher_alive_ = false;
  to_launcher_.clear();
  to_members_.clear();
  timers_.clear();
  for (HostId host = 0; host < hosts_.size(); ++host) end_host_channel(host);
}

void Simulation::cut_data(HostId from, HostId to) {
  for (Process& process : processes_) process.is_hurt |= process.host == from || process.host == to;
  hosts_[from].cut_data_to |= 1U << to;
}

void Simulation::cut_control(HostId id, bool to, bool from) {
  for (Process& process : processes_) process.is_hurt |= process.host == id;
  const auto is_here = [&](MemberId member) { return processes_[member].host == id; };
  hosts_[id].is_cut_to |= to;
  hosts_[id].is_cut_from |= from;
  if (to) std::erase_if(to_members_, [&](auto& one) { return is_here(one.to); });
  if (from) std::erase_if(to_launcher_, [&](auto& one) { return is_here(one.from); });
}

// The agent sees the end of its channel, and says so to its members.
void Simulation::end_host_channel(HostId host) {
  for (Process& process : processes_) {
    if (!process.is_alive || process.host != host || process.is_launcher_gone) continue;
    process.is_noticing_eof = true;
    process.is_being_killed = false;
  }
  std::erase_if(to_members_, [&](auto& one) { return processes_[one.to].host == host; });
}

void Simulation::read_file() {
  for (const HostLine& line : file_) {
    if (std::find(addresses_.begin(), addresses_.end(), line.address) != addresses_.end()) continue;
    addresses_.push_back(line.address);
    hosts_.emplace_back();
  }
  on_world(HostsRead{file_});
}

void Simulation::resume() {
  ResumePoint point;
  point.next_sequence = history_.next_sequence();
  point.next_member = static_cast<MemberId>(processes_.size());
  point.generation = history_.newest_generation();
  point.members = history_.members();
  // Its log has them all as LOST, and hosts get new numbers.
  for (Process& process : processes_) process.is_accounted = true;
  is_launcher_alive_ = true;
  world_.emplace(setup_->options, point);
  if (trace_ != nullptr) trace_->begin_world(setup_->options, point);
  hosts_.clear();
  addresses_.clear();
  read_file();
}

bool Simulation::skip_time() {
  std::int64_t next = -1;
  const auto consider = [&](std::int64_t time) {
    if (time > now_ && (next < 0 || time < next)) next = time;
  };
  if (is_launcher_alive_) {
    for (const Timer& timer : timers_) consider(timer.due);
  }
  for (const Process& process : processes_) consider(process.slow_until);
  if (next < 0) return false;
  now_ = next;
  return true;
}

bool Simulation::is_anyone_alive() const {
  return std::any_of(processes_.begin(), processes_.end(),
                     [](const Process& process) { return process.is_alive; });
}

bool Simulation::is_anyone_hanging() const {
  return std::any_of(processes_.begin(), processes_.end(), [](const Process& process) {
    return process.is_alive && process.is_hanging && process.is_returning;
  });
}

bool Simulation::is_held_up() const {
  if (!is_launcher_alive_ || !is_anyone_hanging()) return false;
  const auto phase = world_->phase();
  if (phase != WorldMachine::Phase::kRunning && phase != WorldMachine::Phase::kHolding)
    return false;
  return std::none_of(processes_.begin(), processes_.end(), [&](const Process& process) {
    return process.is_alive && process.machine.status() == MemberMachine::Status::kHeld &&
           process.machine.generation() == world_->world().generation &&
           !process.machine.is_finished();
  });
}

bool Simulation::is_over() const {
  if (is_launcher_alive_) return world_->phase() == WorldMachine::Phase::kEnded;
  return !is_anyone_alive();
}

}  // namespace chainmail::membership::sim
