// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Supervisors of jobs as processes: who this one is, and what is left of the one that a record
// names. A process is known by the machine's boot, its number and the time of its start, so that
// another one of the same number is never taken for it. Thread-safe.

#pragma once

#include <string>

#include "launcher/jobs/folder/job_record.h"

namespace chainmail::launch {

/// This process. What the kernel does not tell is empty or 0.
[[nodiscard]] JobRecord::Launcher this_launcher();

enum class LauncherTrace {
  kAlive,      ///< it runs here
  kGone,       ///< it ran here, since this machine's boot, and has ended
  kRebooted,   ///< it ran on this machine before its last boot
  kElsewhere,  ///< it runs or ran on another machine, of which nothing can be seen here
};
[[nodiscard]] LauncherTrace trace_of(const JobRecord::Launcher& launcher);

/// Sends a signal to a launcher of this machine; false where it does not run here.
bool signal_launcher(const JobRecord::Launcher& launcher, int number);

}  // namespace chainmail::launch
