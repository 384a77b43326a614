// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/attempts/resize.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <optional>
#include <thread>
#include <tuple>

#include "base/unique_fd.h"
#include "launcher/jobs/folder/disk/job_lock.h"
#include "launcher/jobs/folder/job_list.h"
#include "launcher/output/targets/line_prefix.h"
#include "launcher/output/targets/write_all.h"
#include "launcher/process/command_output.h"

namespace chainmail::launch {
namespace {

using SteadyClock = std::chrono::steady_clock;
using internal::UniqueFd;

constexpr char kResizeLock[] = "resize.lock";
constexpr char kNoTurn[] = "not called, since others have called theirs all the time";
constexpr std::chrono::minutes kResizePatience{10};
constexpr std::chrono::milliseconds kResizeLook{200};
constexpr std::chrono::seconds kLastWords{1};
constexpr std::size_t kMostResizeOutput = 65536;

// Whoever else calls it, that ends before this does.
std::function<bool()> with_patience(const std::function<bool()>& is_stopped) {
  return [is_stopped, end = SteadyClock::now() + kResizePatience] {
    return is_stopped() || SteadyClock::now() > end;
  };
}

// A job that runs, or has ended after this one: its supervisor comes later.
bool is_wanted(const std::string& root, const JobRecord& ended) {
  std::vector<std::string> unreadable;
  const std::vector<FoundJob> jobs = list_jobs(root, true, unreadable);
  return std::any_of(jobs.begin(), jobs.end(), [&](const FoundJob& job) {
    const JobRecord& other = job.record;
    if (other.resize != ended.resize || other.phase == JobPhase::kLost) return false;
    return !is_ended(other.phase) ||
           std::tie(other.ended_ms, other.id) > std::tie(ended.ended_ms, ended.id);
  });
}

std::string result_of(const ResizeProgram& program, std::uint32_t hosts,
                      const std::function<bool()>& is_over) {
  // The program may be named relative to the job file, whose folder nobody need be in.
  std::vector<std::string> command = {"/bin/sh", "-c", "cd \"$0\" && exec \"$@\"",
                                      program.directory.empty() ? "." : program.directory};
  command.insert(command.end(), program.words.begin(), program.words.end());
  command.push_back(std::to_string(hosts));
  RunningCommand running(command, "");
  running.keep_last();
  std::optional<SteadyClock::time_point> ended;
  while (!running.advance(kMostResizeOutput)) {
    if (!ended && running.program_has_ended()) ended = SteadyClock::now();
    // What it has started may keep its output open for ever.
    if (ended && SteadyClock::now() > *ended + kLastWords) {
      running.let_go();
      break;
    }
    if (is_over()) {
      running.give_up();
      break;
    }
    RunningCommand::wait_for_any({&running}, kResizeLook);
  }
  const CommandOutput& output = running.output();
  if (output.failure.empty()) return "";
  const std::string& text = output.err.empty() ? output.out : output.err;
  return output.failure +
         (text.empty() ? "" : ": " + text.substr(0, text.find_last_not_of('\n') + 1));
}

// Beside what the job's own launcher has said.
void log_end(const JobRecord& ended, const std::string& words) {
  const std::string path = ended.stdouterr + "/execution.log";
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
  const std::string text = time_prefix() + words + "\n";
  if (file.is_open()) (void)write_all(file.get(), text);
}

}  // namespace

ResizeProgram resize_program(const JobSpec& spec) {
  return {spec.hosts.resize, std::filesystem::path(spec.file).parent_path().string(),
          spec.hosts.idle.value_or(std::chrono::minutes(10))};
}

std::string call_resize(const std::string& root, const ResizeProgram& program, std::uint32_t hosts,
                        const std::function<bool()>& is_stopped) {
  try {
    // Whoever gives hosts back at this moment has not seen this job yet.
    const UniqueFd lock = take_turn(root, kResizeLock, with_patience(is_stopped));
    if (!lock.is_open()) return is_stopped() ? "not called, since the job ends" : kNoTurn;
    return result_of(program, hosts, with_patience(is_stopped));
  } catch (const std::exception& error) {
    return error.what();
  }
}

void release_hosts(const std::string& root, const ResizeProgram& program, const JobRecord& ended) {
  if (program.words.empty()) return;
  std::this_thread::sleep_for(program.idle);
  try {
    const auto never = [] { return false; };
    const UniqueFd lock = take_turn(root, kResizeLock, with_patience(never));
    if (is_wanted(root, ended)) return;
    const std::string failure =
        lock.is_open() ? result_of(program, 0, with_patience(never)) : kNoTurn;
    log_end(ended, "hosts.resize for 0 hosts: " + (failure.empty() ? "done" : failure));
  } catch (const std::exception& error) {
    log_end(ended, std::string("hosts.resize for 0 hosts: ") + error.what());
  }
}

}  // namespace chainmail::launch
