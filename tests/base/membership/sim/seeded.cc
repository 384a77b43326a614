// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/base/membership/sim/seeded.h"

#include <algorithm>
#include <array>
#include <vector>

namespace chainmail::membership::sim {
namespace {

using Kind = Choice::Kind;

constexpr std::uint32_t kEvents = 240;  // with faults; some 20 follow
constexpr std::uint32_t kMostEvents = 20'000;
constexpr std::uint32_t kMostFaults = 6;

// splitmix64
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31U);
  }
  std::uint32_t below(std::uint32_t end) {
    return static_cast<std::uint32_t>(((next() >> 32U) * end) >> 32U);
  }
  std::uint32_t between(std::uint32_t first, std::uint32_t last) {
    return first + below(last - first + 1);
  }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
  std::uint64_t state_;
};

std::chrono::milliseconds ms(std::uint32_t value) { return std::chrono::milliseconds(value); }

HostLine line_of(std::uint32_t number, std::uint32_t slots) {
  return {"10.0.0." + std::to_string(number), slots};
}

Setup make_setup(Random& random) {
  Setup setup;
  const std::uint32_t hosts = random.between(1, 3);
  std::uint32_t slots = 0;
  for (std::uint32_t host = 0; host < hosts; ++host) {
    setup.hosts.push_back(line_of(host, random.between(1, 2)));
    slots += setup.hosts.back().slots;
  }
  WorldOptions& options = setup.options;
  options.first_size = random.one_in(3) ? random.between(1, slots) : slots;
  options.sizes.multiple = random.one_in(6) ? 2 : 1;
  options.sizes.max = std::max(options.first_size, random.between(2, 5));
  options.sizes.max += options.sizes.max % options.sizes.multiple;
  options.sizes.min = random.between(1, options.sizes.max);
  if (!random.one_in(4)) options.sizes.min = std::min(options.sizes.min, 2U);
  if (options.sizes.fit(options.sizes.max) == 0) options.sizes.min = 1;
  options.spares = random.one_in(4) ? 1 : 0;
  options.shards = random.one_in(3) ? options.sizes.max : 8;
  options.has_prepare = random.one_in(4);
  if (random.one_in(16)) options.max_changes = random.between(1, 4);
  options.window = ms(random.between(1, 60));
  options.spacing = ms(random.between(1, 60));
  options.reports = ms(random.between(1, 50));
  options.stop_limit = ms(random.between(10, 400));
  options.elastic_timeout = ms(random.between(50, 20'000));
  // An hour of the shortest of these would be more events than a run may have.
  options.prepare_timeout = ms(30'000);
  options.cool_down = ms(random.between(10, 200));
  options.cool_down_most = ms(2000);
  setup.member.batch = 16;
  setup.shape.shards = options.shards;
  setup.shape.buckets = random.between(1, kMostBuckets);
  setup.shape.has_slices = random.one_in(2);
  if (random.one_in(4)) setup.last_step = random.between(2, 12);
  setup.returns_at_once = random.one_in(2);
  return setup;
}

class SeededRun {
 public:
  SeededRun(Random& random, const Setup& setup, TraceSink* trace)
      : random_(random),
        sim_(setup, trace),
        tick_(random.between(1, 4)),
        aside_(random.between(1, 12)),
        next_host_(static_cast<std::uint32_t>(setup.hosts.size())) {
    const std::uint32_t count = random.between(1, kMostFaults);
    for (std::uint32_t i = 0; i < kMostFaults; ++i) {
      fault_times_.at(i) = i < count ? random.below(kEvents) : kEvents;
    }
    // The first world, or faults before it in one of eight runs.
    if (!random.one_in(8)) {
      for (std::uint32_t& time : fault_times_) time = std::max(time, 8U);
    }
    std::sort(fault_times_.begin(), fault_times_.end());
    choices_.reserve(64);
  }

  SeededResult run() {
    play_faults();
    while (!is_settled() && events_ < kMostEvents && step()) {
    }
    SeededResult result;
    result.violation = sim_.violation();
    if (result.violation.empty() && !is_settled()) {
      result.violation = is_stuck_ ? "nothing can happen any more, and the job has not ended"
                                   : "the job does not come to a committed step or an end";
    }
    result.trace_hash = sim_.history().trace_hash();
    result.events = events_;
    result.generations = sim_.history().newest_generation();
    result.steps = sim_.history().newest_commit();
    result.has_ended = sim_.is_over();
    return result;
  }

 private:
  void play_faults() {
    std::size_t fault = 0;
    const auto is_any_left = [&] {
      return fault < kMostFaults && fault_times_.at(fault) < kEvents;
    };
    while (events_ < kEvents) {
      if (!step() && !(is_held_up() && is_any_left())) return;
      while (is_any_left() && (fault_times_.at(fault) <= events_ || is_stuck_)) {
        is_stuck_ = false;
        inject();
        ++fault;
      }
    }
  }

  bool step() {
    if (!sim_.violation().empty()) return false;
    if (sim_.is_over()) {
      if (sim_.is_launcher_alive() || !random_.one_in(2)) return false;
      sim_.apply({Kind::kResume, 0, 0});
    }
    sim_.enabled(choices_);
    while (choices_.empty()) {
      if (!sim_.skip_time()) {
        is_stuck_ = true;
        return false;
      }
      sim_.enabled(choices_);
    }
    Choice choice = pick();
    if (choice.kind == Kind::kPrepared) {
      const int failure = random_.one_in(6) ? 1 + choice.a % 2 : 0;  // GCC warns of it at -O1
      choice.b = static_cast<std::uint16_t>(failure);
    }
    if (choice.kind == Kind::kProgramReady && sim_.history().newest_commit() != 0) {
      choice.b = random_.one_in(20) ? 1 : 0;
    }
    sim_.apply(choice);
    sim_.pass_time(tick_);
    ++events_;
    return true;
  }

  // What is not a packet comes sooner or later, as the seed has it.
  Choice pick() {
    const auto others = std::find_if(choices_.begin(), choices_.end(), [](const Choice& choice) {
      return choice.kind != Kind::kPacket;
    });
    const auto packets = static_cast<std::uint32_t>(others - choices_.begin());
    const auto all = static_cast<std::uint32_t>(choices_.size());
    if (packets != 0 && (packets == all || !random_.one_in(aside_))) {
      return choices_[random_.below(packets)];
    }
    return choices_[random_.between(packets, all - 1)];
  }

  // Nothing happens before somebody does something about one that hangs.
  bool is_held_up() const { return is_stuck_ && sim_.is_held_up(); }

  // No fault any more: a world in which every member has committed, and no change is due.
  bool is_settled() const {
    if (sim_.is_over() || is_held_up()) return true;
    if (!sim_.is_launcher_alive()) return false;
    const WorldMachine& world = sim_.world();
    if (world.phase() != WorldMachine::Phase::kRunning || world.is_change_pending()) return false;
    return std::all_of(world.world().members.begin(), world.world().members.end(), [&](auto id) {
      const Simulation::Process& process = sim_.processes()[id];
      return process.is_alive && process.commits != 0 &&
             process.exchange.generation() == world.world().generation;
    });
  }

  void inject() {
    const std::uint32_t kind = random_.below(100);
    if (sim_.is_over()) return;
    if (kind < 28) return hurt(Kind::kCrash, static_cast<std::uint16_t>(random_.below(2)));
    if (kind < 30) return hurt(Kind::kHang, 0);
    if (kind < 40) return hurt(Kind::kStop, 0);
    if (kind < 48) return hurt(Kind::kSlow, static_cast<std::uint16_t>(random_.between(5, 200)));
    if (kind < 52) return checkpoint();
    if (!sim_.is_launcher_alive()) return;
    if (kind < 62) return cut();
    if (kind < 90) return edit();
    const auto host = static_cast<std::uint16_t>(random_.below(host_count()));
    if (kind < 93) return sim_.apply({Kind::kLeaving, host, 0});
    if (kind < 97) {
      const auto fast = static_cast<std::uint16_t>(random_.below(3));
      return sim_.apply({Kind::kRebalance, fast, static_cast<std::uint16_t>(random_.below(3))});
    }
    sim_.apply({Kind::kLauncherDies, 0, 0});
  }

  std::uint32_t host_count() const { return static_cast<std::uint32_t>(sim_.hosts().size()); }

  void hurt(Kind kind, std::uint16_t value) {
    const auto& processes = sim_.processes();
    if (processes.empty()) return;
    for (int attempt = 0; attempt < 4; ++attempt) {
      const std::uint32_t id = random_.below(static_cast<std::uint32_t>(processes.size()));
      const Simulation::Process& process = processes[id];
      if (!process.is_alive) continue;
      // A stopped one may go on; most do not.
      if (process.is_stopped) kind = Kind::kContinue;
      return sim_.apply({kind, static_cast<std::uint16_t>(id), value});
    }
  }

  void checkpoint() {
    if (!sim_.is_launcher_alive()) return;
    for (const Simulation::Process& process : sim_.processes()) {
      if (!process.is_alive || !process.machine.committed() || process.fetching) continue;
      return sim_.apply({Kind::kCheckpoint, static_cast<std::uint16_t>(process.machine.id()), 0});
    }
  }

  void cut() {
    const auto a = static_cast<std::uint16_t>(random_.below(host_count()));
    if (random_.one_in(3)) {
      sim_.apply({Kind::kCutControl, a, static_cast<std::uint16_t>(random_.between(1, 3))});
      return;
    }
    const auto b = static_cast<std::uint16_t>(random_.below(host_count()));
    if (a == b) return;
    sim_.apply({Kind::kCutData, a, b});
    if (random_.one_in(2)) sim_.apply({Kind::kCutData, b, a});
  }

  void edit() {
    std::vector<HostLine> lines = sim_.file();
    const std::uint32_t kind = random_.below(10);
    const std::uint32_t line =
        lines.empty() ? 0 : random_.below(static_cast<std::uint32_t>(lines.size()));
    if (kind < 5 || lines.empty()) {
      lines.push_back(line_of(next_host_++, random_.between(1, 2)));
    } else if (kind < 7) {
      lines.erase(lines.begin() + line);
    } else if (kind < 9) {
      lines[line].slots = random_.between(1, 3);
    } else if (random_.one_in(2)) {
      lines.clear();
    } else {
      lines.back() = line_of(next_host_++, 1);
    }
    sim_.set_file(std::move(lines));
    sim_.apply({Kind::kEdit, 0, 0});
  }

  Random& random_;
  Simulation sim_;
  std::uint32_t tick_;
  std::uint32_t aside_;  // one in so many events is not a packet, if there are both
  std::uint32_t next_host_;
  std::uint32_t events_ = 0;
  bool is_stuck_ = false;
  std::array<std::uint32_t, kMostFaults> fault_times_{};
  std::vector<Choice> choices_;
};

}  // namespace

SeededResult run_seed(std::uint64_t seed, TraceSink* trace) {
  Random random(seed);
  const Setup setup = make_setup(random);
  return SeededRun(random, setup, trace).run();
}

}  // namespace chainmail::membership::sim
