// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Starts one rank as a child of this process: own process group, dies with its parent thread,
// stdout a pty in raw mode (so that C's stdio stays line-buffered), stderr a pipe, stdin
// /dev/null or a pipe, one inherited socket to talk to the launcher.
//
// Call from the main thread of a process with one thread: PR_SET_PDEATHSIG fires when the
// *thread* that forked ends.

#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/channel/wire.h"
#include "launcher/job/environment.h"

namespace chainmail::launch {

/// What a rank's process does before its program runs. Each may take for ever on a file system that
/// does not answer.
enum class StartStage : std::int32_t {
  kSpawn,   ///< arranges its descriptors
  kFolder,  ///< enters its working directory
  kSearch,  ///< looks into a folder of PATH
  kExec     ///< the last: runs its program
};

/// How far a rank's process has come: what RankHandles::start says, in bytes, when a stage begins,
/// and when it fails.
class StartReport {
 public:
  void append(std::span<const std::byte> bytes);

  StartStage stage() const noexcept { return news_.stage; }
  /// errno of the stage that failed, or 0.
  int error() const noexcept { return news_.error; }
  /// The file that is looked for or run; empty before that, and after a failure.
  const std::string& path() const noexcept { return path_; }

  /// What the process writes; of `path`, what is not too long.
  static std::string encode(StartStage stage, int error, std::string_view path);

 private:
  struct News {
    StartStage stage = StartStage::kSpawn;
    std::int32_t error = 0;
    std::uint32_t path_bytes = 0;
  };

  News news_;
  std::string path_;
  std::string unread_;
};

struct RankRequest {
  std::vector<std::string> program;
  std::string working_directory;
  Environment environment;                         ///< complete; CHAINMAIL_JOB_FD is added
  std::vector<int> cpus;                           ///< empty: not bound
  std::span<const std::uint32_t> ignored_signals;  ///< begin so
  bool has_input = false;                          ///< stdin is a pipe
  internal::UniqueFd pmi;                          ///< becomes kPmi1Fd; may be closed
  rlimit descriptors;                              ///< its limit on open files
  int group = -1;                                  ///< folder of a control group; -1: none
  WindowSize window;                               ///< of the terminal that it writes to
};

struct RankHandles {
  pid_t pid = -1;
  internal::UniqueFd output;  ///< master of the pty
  internal::UniqueFd error;
  internal::UniqueFd job;         ///< our end of the socket, to read from
  internal::UniqueFd job_writer;  ///< the same
  internal::UniqueFd input;       ///< where to write its stdin to, if it has one
  internal::UniqueFd start;       ///< StartReport; ends when the program runs, or the process ends
};

/// Returns at once; what becomes of the start is heard from RankHandles::start. Throws SystemError.
[[nodiscard]] RankHandles spawn_rank(const RankRequest& request);

/// Sets the size of a terminal, by either end; nothing changes where the size is not known.
void set_window(int terminal, const WindowSize& size) noexcept;

/// Whether a process that spawn_rank() made, and nobody has reaped, never ran its program; false
/// where the kernel does not tell.
[[nodiscard]] bool has_never_run_program(pid_t pid);

}  // namespace chainmail::launch
