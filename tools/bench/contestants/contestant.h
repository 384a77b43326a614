// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is measured: one way to make a collective among all ranks of this job.
//
// Collective: every rank makes the same contestants and calls them alike. While one runs, the
// others must leave the cores alone: they wait asleep.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tools/bench/measure/timing_loop.h"

namespace chainmail::bench {

/// This process's place among the ranks that are measured.
struct Ranks {
  int rank = 0;
  int size = 1;
  int nodes = 1;
};

struct Case {
  std::string op = "all_reduce";  ///< one of exercise_names()
  std::size_t bytes = 4;
  std::string dtype = "float32";
  std::string redop = "sum";  ///< sum, avg, min or max
  Repeats repeats;
  int rounds = 5;
  bool check = true;
  bool is_issue = false;  ///< time until the call returns, not until a device is done

  std::size_t count() const;  ///< elements, at least one
};

class Contestant {
 public:
  virtual ~Contestant() = default;

  /// As users name it after --against, such as "gloo".
  virtual const std::string& name() const noexcept = 0;
  /// Versions and what else a reader must know; for the header, asked on rank 0.
  virtual std::string description() const = 0;

  /// Makes the buffers of a case, filled with zeros: they stay what they are however often they
  /// are summed. Throws InvalidArgument, on all ranks, for what this contestant cannot do.
  virtual void prepare(const Case& what) = 0;
  /// One call on values that can be checked; elements of this rank that are wrong.
  virtual std::int64_t count_wrong(const Case& what) = 0;
  /// One round of the prepared case.
  virtual Sample time(const Case& what) = 0;
};

}  // namespace chainmail::bench
