// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Runs a program for what it prints, with a deadline.
//
// Start from the main thread (launcher/process/fork_exec.h).

#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "launcher/process/child_process.h"

namespace chainmail::launch {

struct CommandOutput {
  std::string out;
  std::string err;
  /// How it failed, "exited with code 3", or empty.
  std::string failure;
};

/// A program that runs; if it has not ended at the end of the scope, its process group is killed.
class RunningCommand {
 public:
  /// `arguments` are program and arguments, no shell; `input` (64 KiB at most) is all that it can
  /// read. Throws SystemError when it cannot be run.
  RunningCommand(const std::vector<std::string>& arguments, const std::string& input);
  RunningCommand(const RunningCommand&) = delete;
  RunningCommand& operator=(const RunningCommand&) = delete;
  ~RunningCommand();

  /// Waits for the end of its output and of itself; what was there at the deadline counts. To be
  /// called once.
  [[nodiscard]] CommandOutput finish(std::chrono::steady_clock::time_point deadline,
                                     std::size_t most_bytes);

  /// For several at once, instead of finish(). Takes what there is without waiting; true when the
  /// command is over, and output() whole.
  bool advance(std::size_t most_bytes);
  /// Of each stream the last `most_bytes` of advance() count from now on, instead of a longer one
  /// being a failure.
  void keep_last() noexcept { keeps_last_ = true; }
  /// Whether the program itself has ended, which does not wait for what it has started.
  [[nodiscard]] bool program_has_ended() const;
  /// Of a program that has ended: output() is whole now, and what it has started goes on.
  void let_go() { (void)has_ended(); }
  [[nodiscard]] const CommandOutput& output() const noexcept { return output_; }
  /// Waits until one of `commands` may have something for advance(), at most for `time`.
  static void wait_for_any(const std::vector<RunningCommand*>& commands,
                           std::chrono::milliseconds time);
  /// Has output() say why a command was not over in time.
  void give_up();

 private:
  bool has_ended();

  ChildProcess child_;
  CommandOutput output_;
  bool is_open_[2] = {true, true};  // its output, its errors
  bool keeps_last_ = false;
};

}  // namespace chainmail::launch
