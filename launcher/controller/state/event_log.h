// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What happens to a job, for programs: one JSON object per line with the UTC time, a sequence
// number, the generation and the event. docs/launcher.md lists the events and their members.
//
// The lines go to events.jsonl: in the folder of --output, where it stays, or in the job's own,
// which is made only for a job that lives for a while: nobody could follow a shorter one, and it
// should cost nothing. One thread, the io_context's.

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "base/membership/records.h"
#include "launcher/job/options.h"
#include "launcher/output/job_directory.h"
#include "launcher/output/line_writer.h"
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
  /// A change of an elastic job's world, which names its own generation.
  void record(const membership::EventRecord& change);
  /// A line of base/membership/trace.h, with time and sequence number.
  void trace(const std::string& line);
  /// The first event: "job_started", with the programs and the plan.
  void record_start(const Options& options, const Placement& placement);

 private:
  std::string job_;
  std::uint32_t generation_;
  Write write_;
  std::int64_t sequence_ = 0;
};

class EventFile {
 public:
  /// `output_dir` may be empty. `goes_on`: an earlier world of this job has written already. Throws
  /// SystemError where a file in `output_dir` cannot be written.
  EventFile(const std::string& output_dir, JobDirectory& directory, bool goes_on);

  void write(std::string line);
  /// With each heartbeat.
  void beat();
  /// Why lines that were to be kept are lost; empty when none is.
  std::string finish();

 private:
  JobDirectory& directory_;
  const bool is_kept_;
  const bool goes_on_;
  bool has_beaten_ = false;
  bool is_given_up_ = false;
  std::string waiting_;  // lines, until there is a file
  std::unique_ptr<LineWriter> writer_;
};

}  // namespace chainmail::launch
