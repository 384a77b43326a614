// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Machines from 0 to N: a program that a job file names (hosts.resize) is called with the number of
// hosts that a job needs before the job waits for them, and with 0 when the last job that names the
// program has ended a while ago.
//
// Blocks, for a bounded time; the main thread's.

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/jobs/file/job_spec.h"
#include "launcher/jobs/folder/job_record.h"

namespace chainmail::launch {

/// What a job file says of it.
struct ResizeProgram {
  std::vector<std::string> words;  ///< empty: there is none
  std::string directory;           ///< where it runs: the job file's folder
  std::chrono::milliseconds idle = std::chrono::minutes(10);
};

[[nodiscard]] ResizeProgram resize_program(const JobSpec& spec);

/// Calls it with the number behind its words. Only one supervisor of the state folder `root` does
/// so at a time. Empty, or how it failed, with what it has printed last. Ten minutes at most, and
/// not for long once `is_stopped` says so.
[[nodiscard]] std::string call_resize(const std::string& root, const ResizeProgram& program,
                                      std::uint32_t hosts, const std::function<bool()>& is_stopped);

/// After the end of job `ended`: waits, and calls the program with 0 unless a job that names it
/// runs, or has ended after this one, whose supervisor does so then. What came of it is in the
/// job's execution.log.
void release_hosts(const std::string& root, const ResizeProgram& program, const JobRecord& ended);

}  // namespace chainmail::launch
