// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// `launcher --job FILE`: from a job file to a folder and its supervisor, in this process or in one
// that outlives it.
//
// The main thread's.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "launcher/job/options.h"

namespace chainmail::launch {

/// `typed`: of parse_options(arguments). Exit code: the job's; with --detach 0 as soon as its ranks
/// have started. Throws UsageError, HostsError and SystemError for what is found before the job has
/// a folder.
[[nodiscard]] int run_job_file(const Options& typed, std::span<const std::string> arguments,
                               std::vector<int> ignored_signals);

}  // namespace chainmail::launch
