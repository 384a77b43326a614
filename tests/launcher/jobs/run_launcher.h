// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Runs the launcher as a user would and collects what it prints. Not thread-safe.

#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace chainmail::launch {

/// A launcher that was started; killed at the end of the scope if it still runs.
class RunningLauncher {
 public:
  explicit RunningLauncher(const std::vector<std::string>& arguments);
  ~RunningLauncher();
  RunningLauncher(const RunningLauncher&) = delete;
  RunningLauncher& operator=(const RunningLauncher&) = delete;

  pid_t pid() const noexcept { return pid_; }
  void signal(int number) const;
  /// Waits until `text` has been printed to stdout; false after `limit`.
  bool wait_for_output(const std::string& text, std::chrono::milliseconds limit) const;
  /// Exit code, 128 + signal, or -1 when it still runs after `limit`.
  int wait(std::chrono::milliseconds limit);
  std::string out() const;
  std::string err() const;

 private:
  std::string directory_;
  pid_t pid_ = -1;
};

struct Result {
  int code = -1;
  std::string out;
  std::string err;
};

/// Start, wait (30 s at most), collect.
[[nodiscard]] Result run_launcher(const std::vector<std::string>& arguments);
/// The same with a shell script as the program.
[[nodiscard]] Result run_script(std::vector<std::string> arguments, const std::string& script);

/// Processes whose environment holds `variable` ("NAME=value"), zombies left out.
[[nodiscard]] std::vector<pid_t> processes_with(const std::string& variable);
/// Waits until there are none; false after `limit`.
[[nodiscard]] bool all_gone(const std::string& variable, std::chrono::milliseconds limit);

/// The lines of a text, in alphabetical order: ranks print in any.
[[nodiscard]] std::vector<std::string> sorted_lines(const std::string& text);

}  // namespace chainmail::launch
