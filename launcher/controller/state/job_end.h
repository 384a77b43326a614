// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How one world of a job ended, for who has to decide whether there is another. Values.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace chainmail::launch {

/// Whose failure the end is.
enum class EndKind : std::uint8_t {
  kSuccess,      ///< nobody's: all ranks have ended with code 0
  kRankFailed,   ///< a rank's; the exit code is its own
  kHostLost,     ///< a host was lost, its agent or the connection to it
  kNotStarted,   ///< hosts could not be reached, or a program could not be run there
  kNotPrepared,  ///< a host's preparation has failed, or has taken too long (code 124)
  kStopped,      ///< somebody has asked for the end, or reads the output no longer
  kTimeLimit,    ///< --timeout, or ranks that all wait
  kOutputLost,   ///< the launcher's, which could not write what ranks have printed; they ended well
  kFailed,       ///< another failure of the job as a whole: MPI, too few ranks of an elastic job
};

struct JobEnd {
  EndKind kind = EndKind::kSuccess;
  int exit_code = 0;
  /// The first cause without what ranks have printed: "rank 3 on host n2 exited with code 7", "lost
  /// host n2: ..."; empty for a success. May have several lines.
  std::string reason;
  /// The most that a rank has told of its progress: programs without the plugin tell nothing, those
  /// without the training layer no steps.
  std::uint64_t steps = 0;
  std::uint64_t operations = 0;
  /// From the start of the last rank to the first reason for an end; nothing where not all ranks
  /// were started.
  std::optional<std::chrono::milliseconds> ran_for;
  /// Hosts that were lost or could not be reached; not those that were only reached through one.
  std::vector<std::string> lost_hosts;
  /// Some of those that could not be reached may come back; what is wrong with a host that was
  /// reached stays so.
  bool may_pass = false;
  bool was_interrupted = false;  ///< somebody has asked for the end, if only when it had begun
  std::string lost_output;       ///< what could not be written, and why; empty: nothing
};

}  // namespace chainmail::launch
