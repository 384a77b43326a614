// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tells a job's observer what has changed, once, and hears what it asks for.
//
// One thread, the io_context's.

#pragma once

#include <optional>
#include <string>
#include <utility>

#include "launcher/controller/outside/job_observer.h"

namespace chainmail::launch {

class ObservedJob {
 public:
  explicit ObservedJob(JobObserver observer) : observer_(std::move(observer)) {}

  /// Told if it is another phase than the last, or has another reason. A job that is stopping does
  /// nothing else any more.
  void enter(JobPhase phase, const std::string& reason = "");
  /// With each heartbeat: what is asked for beyond what was asked before; mostly kNone.
  [[nodiscard]] StopRequest next_request();

 private:
  JobObserver observer_;
  std::optional<JobPhase> phase_;
  std::string reason_;
  StopRequest asked_ = StopRequest::kNone;
};

}  // namespace chainmail::launch
