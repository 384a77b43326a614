// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/outside/observed_job.h"

namespace chainmail::launch {

void ObservedJob::enter(JobPhase phase, const std::string& reason) {
  if (phase_ == JobPhase::kStopping || (phase_ == phase && reason_ == reason)) return;
  phase_ = phase;
  reason_ = reason;
  if (observer_.on_phase) observer_.on_phase(phase, reason);
}

StopRequest ObservedJob::next_request() {
  const StopRequest request = observer_.on_beat ? observer_.on_beat() : StopRequest::kNone;
  if (request <= asked_) return StopRequest::kNone;
  return asked_ = request;
}

}  // namespace chainmail::launch
