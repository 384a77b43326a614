// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the benchmark prints: a header, one line per size in nccl-tests' column order, and the same
// as one JSON object per line. Pure functions.

#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tools/bench/machine/machine.h"
#include "tools/bench/measure/timing.h"

namespace chainmail::bench {

/// What a run has in common.
struct RunFacts {
  Machine machine;
  int ranks = 1;
  int nodes = 1;
  std::string topology;  ///< "2 nodes x 2 ranks"
  bool is_engine = false;
  std::string algorithm;
  std::string wire;
  std::string device;  ///< "NVIDIA H200, CUDA 13.0, NCCL 2.28.9 (...)"; empty: host memory
  int rounds = 0;
  int samples = 0;
  /// "chainmail: the engine's call", "mpi: Open MPI v4.1.4", ours first.
  std::vector<std::string> contestants;
};

/// One size.
struct Measured {
  std::string op;
  std::size_t bytes = 0;
  std::size_t count = 0;
  std::string dtype;
  std::string redop;
  int batch = 1;
  double bus_factor = 1.0;
  std::vector<Result> results;  ///< ours first
};

[[nodiscard]] std::string header_text(const RunFacts& facts);
/// The columns' names, with those of the contestants beside ours.
[[nodiscard]] std::string column_text(const std::string& op, const std::vector<Result>& rows);
[[nodiscard]] std::string table_line(const Measured& measured);
/// One object for each contestant beside ours; one with base "none" where nothing was compared,
/// where base_us and the ratios are null.
[[nodiscard]] std::string json_lines(const RunFacts& facts, const Measured& measured);

}  // namespace chainmail::bench
