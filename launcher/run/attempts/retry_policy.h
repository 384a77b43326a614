// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether a job file's job is started once more after an attempt has ended. Hosts that were lost
// and programs that failed are counted apart (as Kubernetes' JobSet and SkyPilot do): machines that
// vanish are nobody's mistake, and a program that fails will fail again. Pure.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "launcher/jobs/file/job_spec.h"

namespace chainmail::launch {

/// How an attempt ended.
struct AttemptEnd {
  enum class Kind {
    kSucceeded,
    kProgramFailed,  ///< a rank's exit code or signal; a preparation's
    kHostLost,
    kNotStarted,  ///< hosts out of reach; no rank has been started
    kStopped,     ///< by a signal or `launcher stop`
    kTimeLimit,
    kLauncherError,  ///< as of a disk, or of usage that only hosts could tell
  };
  Kind kind = Kind::kSucceeded;
  int exit_code = 0;
  std::string reason;  ///< "rank 3 on host n2 exited with code 7", "host n2 was lost"
  /// A rank has reported a step, or ranks that report none have run for a minute.
  bool has_got_going = false;
  /// Somebody has asked for the job's end while this attempt ended by itself.
  bool was_interrupted = false;
};

class RetryPolicy {
 public:
  explicit RetryPolicy(const JobSpec::Retry& retry) : retry_(retry) {}

  struct Decision {
    bool is_retry = false;
    std::string words;  ///< "the job is started again: host n2 was lost (loss 1 of 20)"
  };
  /// Counts it.
  [[nodiscard]] Decision after(const AttemptEnd& end);

  [[nodiscard]] std::uint32_t losses() const noexcept { return losses_; }
  [[nodiscard]] std::uint32_t failures() const noexcept { return failures_; }

 private:
  const JobSpec::Retry retry_;
  std::uint32_t losses_ = 0;
  std::uint32_t failures_ = 0;
};

}  // namespace chainmail::launch
