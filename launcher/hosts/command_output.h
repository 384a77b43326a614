// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Runs a program for what it prints, with a deadline.
//
// Start from the main thread (launcher/fork_exec.h).

#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "launcher/child_process.h"

namespace chainmail::launch {

struct CommandOutput {
  std::string out;
  std::string err;
  /// How it failed, "exited with code 3", or empty.
  std::string failure;
};

/// A program that runs; it and what it started are killed at the end of the scope.
class RunningCommand {
 public:
  /// `arguments` are program and arguments, no shell; `input` (64 KiB at most) is all that it can
  /// read. Throws SystemError when it cannot be run.
  RunningCommand(const std::vector<std::string>& arguments, const std::string& input);
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;
  ~RunningCommand();

  /// Waits for the end of its output and of itself. To be called once.
  [[nodiscard]] CommandOutput finish(std::chrono::steady_clock::time_point deadline,
                                     std::size_t most_bytes);

 private:
  void read_until(std::chrono::steady_clock::time_point deadline, std::size_t most_bytes,
                  CommandOutput& output);
  void wait_until(std::chrono::steady_clock::time_point deadline, CommandOutput& output);

  ChildProcess child_;
};

}  // namespace chainmail::launch
