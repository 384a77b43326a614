// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What happens to a job, for programs: one JSON object per line with the UTC time, a sequence
// number, the generation and the event. docs/launcher.md lists the events and their members.
//
// Formats only; who writes the lines must not block the controller. Not thread-safe.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <variant>

#include "launcher/job/options.h"
#include "launcher/placement/placement.h"

namespace chainmail::launch {

class EventLog {
 public:
  using Value = std::variant<std::int64_t, double, std::string>;
  using Members = std::map<std::string, Value>;
  using Write = std::function<void(std::string line)>;

  /// Without `write` nothing is recorded.
  EventLog(std::string job, std::uint32_t generation, Write write)
      : job_(std::move(job)), generation_(generation), write_(std::move(write)) {}

  void record(std::string_view event, const Members& members = {});
  /// The first event: "job_started", with the programs and the plan.
  void record_start(const Options& options, const Placement& placement);

 private:
  std::string job_;
  std::uint32_t generation_;
  Write write_;
  std::int64_t sequence_ = 0;
};

}  // namespace chainmail::launch
