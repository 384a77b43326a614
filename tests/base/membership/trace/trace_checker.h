// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether the machines can have done what a recorded job did: every machine is fed with the events
// of its lines and must ask for the same actions, and what they heard must be what they told each
// other. base/membership/trace.h says what the lines look like.
//
// One thread.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/membership/types.h"

namespace chainmail::membership {

class TraceChecker {
 public:
  TraceChecker();
  ~TraceChecker();

  /// The lines of one file after the other, each in its order: events.jsonl, then the members'.
  /// `place` names the line in problems.
  void add(std::string_view line, const std::string& place);
  /// After the last line: what the files say about each other. The problems found, none for a job
  /// that the machines can have run.
  [[nodiscard]] const std::vector<std::string>& finish();
  /// The same of events.jsonl alone, where members have written nothing.
  [[nodiscard]] const std::vector<std::string>& finish_launcher();

  [[nodiscard]] std::uint64_t lines() const;
  [[nodiscard]] std::size_t members() const;
  /// The newest committed one.
  [[nodiscard]] StepNumber steps() const;

 private:
  class State;
  std::unique_ptr<State> state_;
};

}  // namespace chainmail::membership
