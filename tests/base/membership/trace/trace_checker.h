// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether the machines can have done what a recorded job did: every machine is fed with the events
// of its lines and must ask for the same actions, and what they heard must be what they told each
// other.
//
// One thread.

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/membership/member/member_machine.h"
#include "base/membership/world/world_machine.h"

namespace chainmail::membership {

class TraceChecker {
 public:
  /// The lines of one file after the other, each in its order: events.jsonl, then the members'.
  /// `place` names the line in problems.
  void add(std::string_view line, const std::string& place);
  /// After the last line: what the files say about each other. The problems found, none for a job
  /// that the machines can have run.
  [[nodiscard]] const std::vector<std::string>& finish();

  [[nodiscard]] std::uint64_t lines() const { return lines_; }
  [[nodiscard]] std::size_t members() const { return members_.size(); }
  [[nodiscard]] StepNumber steps() const { return steps_.empty() ? 0 : steps_.rbegin()->first; }

 private:
  using Json = nlohmann::json;

  struct Member {
    std::unique_ptr<MemberMachine> machine;
    std::vector<std::string> told;  ///< what it was told by its own file
    std::vector<std::string> sent;
  };
  /// What the launcher's file says about a member.
  struct Peer {
    std::vector<std::string> told;
    std::vector<std::string> said;
  };
  struct Committed {
    std::string state;
    std::uint64_t position = 0;
    std::string place;
  };

  void add_world(const Json& line, const std::string& place);
  void add_member(const Json& line, const std::string& place);
  void note_actions(const Json& line, MemberId id, const MemberActions& actions,
                    const std::string& place);
  void compare(const Json& recorded, const std::string& ours, const std::string& place);
  void problem(const std::string& place, const std::string& what);

  std::unique_ptr<WorldMachine> world_;
  std::map<MemberId, Member> members_;
  std::map<MemberId, Peer> peers_;
  std::map<StepNumber, Committed> steps_;
  std::map<Generation, std::string> worlds_;
  std::optional<std::uint64_t> next_sequence_;
  std::uint64_t lines_ = 0;
  std::vector<std::string> problems_;
};

}  // namespace chainmail::membership
