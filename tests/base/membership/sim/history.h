// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a correct job may do, and what this one has done: the invariants of the simulation that look
// at more than one machine. The first violation is kept.
//
// A value; one thread.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/membership/records.h"
#include "base/membership/types.h"
#include "tests/base/membership/sim/exchange.h"

namespace chainmail::membership::sim {

class History {
 public:
  History(const ExchangeShape& shape, std::uint64_t batch) : shape_(&shape), batch_(batch) {}

  void fail(std::string what) {
    if (violation_.empty()) violation_ = std::move(what);
  }
  [[nodiscard]] const std::string& violation() const { return violation_; }

  /// The state that all shards of all steps up to `step` make, whoever computed them.
  [[nodiscard]] std::uint64_t state_at(StepNumber step);
  /// A member has committed `step` with `state` at `position`.
  void commit(MemberId member, StepNumber step, std::uint64_t position, std::uint64_t state);
  /// A member takes part in `world`.
  void join(const World& world);
  /// A line of the log.
  void log(const LogRecord& record);
  /// A member wrote `step` to disk.
  void save(StepNumber step, std::uint64_t state);
  /// The step that all members of a world read from disk: what is there when the first one does.
  [[nodiscard]] StepNumber load(Generation generation);

  [[nodiscard]] StepNumber newest_commit() const { return newest_commit_; }
  [[nodiscard]] StepNumber on_disk() const { return on_disk_; }
  [[nodiscard]] std::uint64_t next_sequence() const { return next_sequence_; }
  [[nodiscard]] Generation newest_generation() const {
    return static_cast<Generation>(worlds_.size());
  }
  /// Addresses of the members, as who replays the log knows them.
  [[nodiscard]] const std::vector<std::string>& members() const { return members_; }
  /// Of what the job has done so far, for comparison of whole runs.
  [[nodiscard]] std::uint64_t trace_hash() const { return trace_hash_; }
  void add_to_trace(std::uint64_t value) { trace_hash_ = mix(trace_hash_ + value); }
  [[nodiscard]] std::uint64_t digest() const;

 private:
  const ExchangeShape* shape_;
  std::uint64_t batch_;
  std::string violation_;
  std::vector<std::uint64_t> states_{1};  // by step
  std::vector<std::uint64_t> worlds_;     // hash of the member set, by generation - 1
  std::uint64_t next_sequence_ = 0;
  std::vector<std::string> members_;
  StepNumber newest_commit_ = 0;
  StepNumber on_disk_ = 0;
  std::map<Generation, StepNumber> loaded_;  // who has read from disk, and what
  std::uint64_t trace_hash_ = 0;
};

}  // namespace chainmail::membership::sim
