// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Who looks at a job while it runs, and may ask for its end by other means than a signal.
//
// Callbacks run in the loop of the job's Controller: they must not block (what may, such as a look
// at a shared file system, belongs into a RequestWatch) and must not throw. Each may be missing.

#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "launcher/controller/outside/request_watch.h"
#include "launcher/jobs/folder/job_record.h"

namespace chainmail::launch {

struct JobObserver {
  /// kPreparing: agents are being started, or hosts prepared. kQueued: some hosts do not answer and
  /// are tried again; `reason` names them. kRunning: all ranks have started, in an elastic job
  /// those of the first world. kStopping: somebody has asked for the end; `reason` says how. Each
  /// time that it changes, so kQueued and kPreparing may come in turns.
  std::function<void(JobPhase phase, const std::string& reason)> on_phase;
  /// Once a second. What it returns is asked of the job; the same again changes nothing.
  std::function<StopRequest()> on_beat;
  /// What the launcher says between two worlds, one line; where it is missing, on standard error.
  std::function<void(const std::string& line)> on_words;
  /// Since when the time limit counts; nothing: from now on.
  std::optional<std::chrono::steady_clock::time_point> began;
};

}  // namespace chainmail::launch
