// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the machines ask for, carried out; choices.cc is what happens around them.

#include "tests/base/membership/sim/simulation.h"

#include <algorithm>

#include "base/membership/digest.h"
#include "tests/base/membership/sim/trace_sink.h"

namespace chainmail::membership::sim {
namespace {

std::string name_of(const Simulation::Process& process) {
  return "member " + std::to_string(process.machine.id());
}

}  // namespace

Simulation::Simulation(const Setup& setup, TraceSink* trace)
    : setup_(&setup),
      trace_(trace),
      world_(std::in_place, setup.options),
      file_(setup.hosts),
      history_(setup.shape, setup.member.batch) {
  processes_.reserve(16);
  if (trace_ != nullptr) trace_->begin_world(setup.options, {});
  read_file();
}

void Simulation::on_world(const WorldEvent& event) {
  if (!is_launcher_alive_) return;
  world_actions_.clear();
  world_->on(event, world_actions_);
  if (trace_ != nullptr) trace_->world(event, world_actions_);
  for (const WorldAction& action : world_actions_) {
    std::visit([this](const auto& one) { perform(one); }, action);
  }
  world_actions_.clear();
  while (!elapsed_.empty()) {
    const Timer timer = elapsed_.back();
    elapsed_.pop_back();
    on_world(WorldTimerElapsed{timer.timer, timer.subject});
  }
}

void Simulation::on_member(MemberId id, const MemberEvent& event) {
  Process& process = processes_[id];
  before_ = process.machine.committed();
  member_actions_.clear();
  process.machine.on(event, member_actions_);
  for (const MemberAction& action : member_actions_) {
    std::visit([&](const auto& one) { perform(process, one); }, action);
  }
  if (trace_ != nullptr) trace_->member(process.machine, event, member_actions_, process.state);
  member_actions_.clear();
}

// Until the member needs something from outside.
void Simulation::run_on(MemberId id) {
  Process& process = processes_[id];
  while (process.is_alive) {
    if (process.is_returning && setup_->returns_at_once && !process.is_hanging) {
      process.is_returning = false;
      on_member(id, StepReturned{process.step >= setup_->last_step});
    } else if (process.exchange.is_connected() && process.world->members.size() > 1 &&
               process.exchange.is_complete()) {
      const auto step = process.step + 1;
      const bool is_wanted = process.exchange.is_wanted();
      on_member(id, Exchanged{process.exchange.generation(), step, is_wanted});
      if (process.step != step) return;  // not taken: it has reported its last will
    } else {
      return;
    }
  }
}

void Simulation::perform(const Tell& action) {
  Process& process = processes_[action.to];
  if (const auto* const world = std::get_if<NewWorld>(&action.message)) {
    for (const MemberId id : world->world->base) processes_[id].is_base = true;
  }
  const bool is_leave = std::holds_alternative<Leave>(action.message);
  const bool is_end = world_->phase() == WorldMachine::Phase::kEnded;
  if (is_leave && !is_end && process.is_base && !hosts_[process.host].is_leaving) {
    history_.fail("base " + name_of(process) + " was drained by an edit");
  }
  if (process.is_alive && !hosts_[process.host].is_cut_to) {
    to_members_.push_back({action.to, action.message});
  }
}

void Simulation::perform(const Prepare& action) {
  hosts_[action.host].is_preparing = action.is_running;
}

// A new agent, where the last one was lost: by then the network is mended.
void Simulation::perform(const StartMember& action) {
  if (action.member != processes_.size()) history_.fail("a member id was skipped or used again");
  Host& host = hosts_[action.host];
  if (host.is_lost) {
    host.is_lost = host.is_cut_to = host.is_cut_from = false;
    ++host.agent;
  }
  host.cut_data_to = 0;
  for (Host& other : hosts_) other.cut_data_to &= ~(1U << action.host);
  processes_.emplace_back(action.member, action.host, *setup_).agent = host.agent;
  if (trace_ != nullptr) trace_->begin_member(action.member, setup_->member);
  // One that the launcher starts behind a cut is never heard of.
  if (host.is_cut_to) end_process(processes_.back(), true, 1);
}

void Simulation::perform(const EndMember& action) {
  Process& process = processes_[action.member];
  if (!process.is_alive || hosts_[process.host].is_cut_to) return;
  process.is_being_killed = true;
}

void Simulation::perform(const StartWorldTimer& action) {
  const std::uint32_t bit = 1U << static_cast<std::uint32_t>(action.timer);
  if ((setup_->ignored_timers & bit) != 0) return;
  const Timer timer{action.timer, action.subject, now_ + action.duration.count()};
  if ((setup_->immediate_timers & bit) != 0) return elapsed_.push_back(timer);
  for (Timer& running : timers_) {
    if (running.timer != timer.timer || running.subject != timer.subject) continue;
    running = timer;
    return;
  }
  timers_.push_back(timer);
}

void Simulation::perform(const LogRecord& action) {
  history_.log(action);
  if (action.change != Change::kLost || action.cause == "the launcher ended") return;
  const bool is_drain = action.cause == "reached no boundary to drain at in time";
  if (is_drain && is_anyone_hanging()) return;
  // Nobody is lost who was not hurt.
  for (Process& process : processes_) {
    if (!process.is_hurt || process.is_accounted) continue;
    if (addresses_[process.host] != action.address) continue;
    process.is_accounted = true;
    return;
  }
  history_.fail("nothing was wrong with who is logged as " + line_of(action, 0));
}

void Simulation::perform(const EndJob& action) {
  history_.add_to_trace(static_cast<std::uint64_t>(action.code) + 1000);
  if (action.cause == "members are held at different steps") history_.fail(action.cause);
}

void Simulation::perform(Process& process, const Send& action) {
  tell_launcher(process, MemberSaid{process.machine.id(), action.message});
}

void Simulation::perform(Process& process, const Fence& /*action*/) {
  process.exchange.disconnect();
  process.fetching.reset();
  process.accused = 0;
}

void Simulation::perform(Process& process, const Connect& action) {
  process.world = action.world;
  process.commits = 0;
  process.accused = 0;
  const auto rank = action.world->rank_of(process.machine.id());
  if (!rank || action.world->members.size() > kMostRanks) return history_.fail("a wrong world");
  process.exchange.connect(*action.world, *rank, action.segment);
  history_.join(*action.world);
}

void Simulation::perform(Process& process, const FetchState& action) {
  const bool is_load = action.start.donors.empty();
  if (before_ && *before_ > (is_load ? history_.on_disk() : action.start.step)) {
    history_.fail("the committed step " + std::to_string(*before_) + " of " + name_of(process) +
                  " is undone");
  }
  process.fetching = action.start;
  const auto& donors = action.start.donors;
  if (donors.empty()) return;
  Packet request;
  request.kind = Packet::Kind::kFetch;
  request.from = static_cast<std::uint16_t>(process.machine.id());
  request.to = static_cast<std::uint16_t>(donors[process.machine.id() % donors.size()]);
  request.generation = process.exchange.generation();
  request.segment = process.exchange.segment();
  packets_.push_back(request);
}

void Simulation::perform(Process& process, const BeginStep& action) {
  if (action.step != process.step + 1 || process.fetching) {
    history_.fail(name_of(process) + " began step " + std::to_string(action.step) +
                  " with the state of " + std::to_string(process.step));
  }
  process.exchange.begin(static_cast<std::uint32_t>(action.step), action.position, process.state,
                         action.is_change_wanted, packets_);
}

void Simulation::perform(Process& process, const Commit& action) {
  process.state = process.exchange.result();
  process.step = action.step;
  process.exchange.finish();
  process.is_returning = true;
  ++process.commits;
  history_.commit(process.machine.id(), action.step, action.position, process.state);
  for (const Process& other : processes_) {
    if (!other.is_alive || !other.exchange.is_connected()) continue;
    if (other.exchange.generation() != process.exchange.generation()) continue;
    const auto committed = other.machine.committed();
    if (!committed || other.fetching) continue;
    if (*committed + 1 < action.step || action.step + 1 < *committed) {
      history_.fail(name_of(process) + " and " + name_of(other) + " are two steps apart");
    }
  }
}

void Simulation::perform(Process& process, const SaveState& action) {
  if (action.step != process.step) history_.fail(name_of(process) + " would save another step");
  process.is_saving = true;
}

void Simulation::perform(Process& process, const ReportWill& action) {
  process.will = Will{process.machine.id(), action.step};
}

void Simulation::perform(Process& process, const StartGrace& /*action*/) {
  process.is_grace_running = true;
}

void Simulation::perform(Process& process, const Exit& action) {
  process.has_left = true;
  const auto committed = process.machine.committed();
  if (process.is_launcher_gone && !process.is_hurt && committed &&
      *committed > history_.on_disk()) {
    history_.fail(name_of(process) + " took step " + std::to_string(*committed) + " with it");
  }
  end_process(process, true, action.code);
}

void Simulation::tell_launcher(const Process& process, WorldEvent event) {
  if (!is_launcher_alive_ || hosts_[process.host].is_cut_from) return;
  to_launcher_.push_back({process.machine.id(), std::move(event)});
}

// `drops`: what it had sent and nobody has received is lost.
void Simulation::end_process(Process& process, bool drops, int code) {
  const MemberId id = process.machine.id();
  process.is_alive = false;
  // The agent of a writer that dies chooses another one.
  if (process.is_launcher_gone && process.is_saving) {
    hosts_[process.host].wills &= ~(1U << process.agent);
  }
  process.is_building = process.is_returning = process.is_saving = false;
  process.is_noticing_eof = process.is_being_killed = process.is_grace_running = false;
  process.fetching.reset();
  process.exchange.disconnect();
  std::erase_if(to_members_, [&](const ToMember& one) { return one.to == id; });
  std::erase_if(packets_,
                [&](const Packet& one) { return one.to == id || (drops && one.from == id); });
  tell_launcher(process, MemberEnded{id, code, code == 0 ? "exited with code 0" : "killed"});
}

namespace {

// The order between links means nothing: a sum, with the place within its link in each part.
template <typename Item>
std::uint64_t sum_of_links(const std::vector<Item>& items, const auto& is_same_link,
                           const auto& hash_of) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::uint64_t place = 0;
    for (std::size_t j = 0; j < i; ++j) place += is_same_link(items[j], items[i]) ? 1U : 0U;
    sum += mix(hash_of(items[i]) + mix(place));
  }
  return sum;
}

std::uint64_t hash_of(const Packet& packet) {
  std::uint64_t hash = mix(static_cast<std::uint64_t>(packet.kind) * 8 + packet.bucket * 2U +
                           (packet.flag ? 1U : 0U));
  hash = mix(hash + packet.from * 4096U + packet.to + (std::uint64_t{packet.segment} << 40U));
  return mix(hash + mix(packet.value + packet.step) + packet.position);
}

void add_to(Digest& digest, const Simulation::Process& process) {
  digest.add_number(process.machine.digest());
  digest.add_number(process.exchange.digest());
  digest.add_number(process.state + process.step + process.agent);
  std::uint64_t flags = process.accused;
  for (const bool flag :
       {process.is_stopped, process.is_hanging, process.is_hurt, process.is_accounted,
        process.is_launcher_gone, process.is_building, process.is_returning, process.is_saving,
        process.is_noticing_eof, process.is_being_killed, process.is_grace_running,
        process.will.has_value(), process.is_base}) {
    flags = flags * 2 + (flag ? 1 : 0);
  }
  digest.add_number(flags);
  digest.add(process.fetching);
}

void add_to(Digest& digest, const Simulation::Host& host) {
  digest.add_number((host.is_cut_to ? 1U : 0U) + (host.is_cut_from ? 2U : 0U) +
                    (host.is_lost ? 4U : 0U) + (host.is_leaving ? 8U : 0U) +
                    (host.is_preparing ? 16U : 0U) + host.agent * 32U);
  digest.add_number(host.cut_data_to + (std::uint64_t{host.wills} << 32U));
}

}  // namespace

std::uint64_t Simulation::digest() const {
  Digest digest;
  digest.add_number(is_launcher_alive_ ? world_->digest() : 0);
  for (const Process& process : processes_) {
    if (process.is_alive) {
      add_to(digest, process);
    } else {
      const bool is_lost_soon = process.is_hurt && !process.is_accounted;
      digest.add_number((is_lost_soon ? 1U : 0U) + (process.has_left ? 2U : 0U));
    }
  }
  for (const Host& host : hosts_) add_to(digest, host);
  digest.add_number(sum_of_links(
      packets_, [](auto& a, auto& b) { return a.from == b.from && a.to == b.to; },
      [](auto& packet) { return hash_of(packet); }));
  digest.add_number(sum_of_links(
      to_members_, [](auto& a, auto& b) { return a.to == b.to; },
      [](auto& one) {
        Digest hash;
        hash.add_number(one.to);
        hash.add(one.message);
        return hash.value();
      }));
  digest.add_number(sum_of_links(
      to_launcher_, [](auto& a, auto& b) { return a.from == b.from; },
      [](auto& one) {
        Digest hash;
        hash.add_number(one.from);
        hash.add(one.event);
        return hash.value();
      }));
  std::uint64_t sum = 0;
  for (const Timer& timer : timers_) {
    sum += mix(static_cast<std::uint64_t>(timer.timer) * 4096 + timer.subject + 7);
  }
  digest.add_number(sum + history_.digest());
  return digest.value();
}

}  // namespace chainmail::membership::sim
