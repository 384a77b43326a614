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

#include "launcher/jobs/folder/job_record.h"

namespace chainmail::launch {

/// `words` with the number behind them, in `directory`. Empty, or how it failed, with what it has
/// printed. Ten minutes at most, and not for long once `is_stopped` says so.
[[nodiscard]] std::string call_resize(const std::vector<std::string>& words, std::uint32_t hosts,
                                      const std::string& directory,
                                      const std::function<bool()>& is_stopped);

struct IdleHosts {
  std::vector<std::string> resize;
  std::string directory;
  std::chrono::milliseconds idle = std::chrono::minutes(10);
};
/// After the end of job `ended` of the state folder `root`: waits, and calls the program with 0
/// unless a job that names it runs, or has ended after this one, whose supervisor does so then.
/// Only one supervisor decides at a time.
void release_hosts(const std::string& root, const IdleHosts& hosts, const JobRecord& ended);

}  // namespace chainmail::launch
