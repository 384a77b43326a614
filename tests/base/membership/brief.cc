// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "tests/base/membership/brief.h"

#include <array>
#include <string_view>

#include "base/membership/records.h"

namespace chainmail::membership {
namespace {

std::string text(std::uint64_t number) { return std::to_string(number); }

std::string list(const auto& numbers) {
  std::string out = "[";
  for (const auto number : numbers) out += (out.size() > 1 ? " " : "") + text(number);
  return out + "]";
}

std::string brief_of(const auto& variant);

// A struct, so that all of these see each other.
struct Brief {
  std::string operator()(const Start& start) const {
    return "from " + text(start.step) + (start.donors.empty() ? "" : " of " + list(start.donors));
  }

  std::string operator()(const World& world) const {
    return text(world.generation) + " " + list(world.members);
  }

  std::string operator()(const Wanted& m) const { return "wanted " + text(m.generation); }
  std::string operator()(const NewWorld& m) const {
    return "world " + (*this)(*m.world) + (m.start ? " " + (*this)(*m.start) : "");
  }
  std::string operator()(const Resume& m) const {
    return "resume " + text(m.generation) + " " + (*this)(m.start);
  }
  std::string operator()(const Leave& m) const { return "leave " + text(m.generation); }
  std::string operator()(const Save& m) const { return "save " + text(m.generation); }

  std::string operator()(const Ready& m) const { return "ready " + text(m.fingerprint); }
  std::string operator()(const Held& m) const {
    return "held " + text(m.generation) + " at " + text(m.step) +
           (m.is_finished ? " finished" : "");
  }
  std::string operator()(const MyState& m) const {
    return "state " + text(m.generation) + (m.step ? " at " + text(*m.step) : " none");
  }
  std::string operator()(const Fetched& m) const {
    return "fetched " + text(m.generation) + " at " + text(m.step);
  }
  std::string operator()(const Running& m) const {
    return "running " + text(m.generation) + " at " + text(m.step);
  }
  std::string operator()(const Accuse& m) const {
    return "accuse " + text(m.peer) + " in " + text(m.generation);
  }
  std::string operator()(const Saved& m) const { return "saved " + text(m.step); }

  std::string operator()(const Tell& a) const {
    return "tell " + text(a.to) + " " + brief_of(a.message);
  }
  std::string operator()(const Prepare& a) const {
    return (a.is_running ? "prepare " : "end preparing ") + text(a.host);
  }
  std::string operator()(const StartMember& a) const {
    return "start " + text(a.member) + " on " + text(a.host);
  }
  std::string operator()(const EndMember& a) const { return "end " + text(a.member); }
  std::string operator()(const StartWorldTimer& a) const {
    static constexpr std::array<std::string_view, 10> kTimers{
        "window",    "spacing", "reports", "stopped", "drain",
        "cool-down", "settled", "prepare", "elastic", "replies"};
    return "timer " + std::string(kTimers.at(static_cast<std::size_t>(a.timer))) + " " +
           text(a.subject) + " " + std::to_string(a.duration.count());
  }
  std::string operator()(const LogRecord& a) const {
    // The time is not the machine's.
    std::string line = line_of(a, 7);
    return "log " + line.erase(line.find(" 7 "), 2);
  }
  std::string operator()(const EventRecord& a) const {
    return "event " + std::string(to_string(a.kind));
  }
  std::string operator()(const EndJob& a) const {
    return "end job " + std::to_string(a.code) + ": " + a.cause;
  }

  std::string operator()(const Send& a) const { return "send " + brief_of(a.message); }
  std::string operator()(const Fence& a) const { return "fence " + text(a.generation); }
  std::string operator()(const Connect& a) const { return "connect " + (*this)(*a.world); }
  std::string operator()(const FetchState& a) const { return "fetch " + (*this)(a.start); }
  std::string operator()(const BeginStep& a) const {
    return "begin " + text(a.step) + " at sample " + text(a.position) +
           (a.is_change_wanted ? " wanted" : "");
  }
  std::string operator()(const Commit& a) const {
    return "commit " + text(a.step) + " to " + text(a.position);
  }
  std::string operator()(const SaveState& a) const { return "save state " + text(a.step); }
  std::string operator()(const ReportWill& a) const {
    return "will " + (a.step ? text(*a.step) : "none");
  }
  std::string operator()(const StartGrace& a) const {
    return "grace " + std::to_string(a.duration.count());
  }
  std::string operator()(const Exit& a) const { return "exit " + std::to_string(a.code); }
};

std::string brief_of(const auto& variant) { return std::visit(Brief(), variant); }

std::string lines_of(const auto& actions) {
  std::string lines;
  for (const auto& action : actions) lines += (lines.empty() ? "" : "\n") + brief_of(action);
  return lines;
}

}  // namespace

std::string brief(const WorldActions& actions) { return lines_of(actions); }
std::string brief(const MemberActions& actions) { return lines_of(actions); }

}  // namespace chainmail::membership
