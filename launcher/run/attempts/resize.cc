// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/attempts/resize.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <tuple>

#include "base/unique_fd.h"
#include "launcher/jobs/folder/job_list.h"
#include "launcher/process/command_output.h"

namespace chainmail::launch {
namespace {

using SteadyClock = std::chrono::steady_clock;
using internal::UniqueFd;

constexpr std::chrono::minutes kResizePatience{10};
constexpr std::chrono::milliseconds kResizeLook{200};
constexpr std::size_t kMostResizeOutput = 65536;

// One supervisor at a time; empty where the folder is gone.
UniqueFd lock_of(const std::string& root) {
  UniqueFd file(open((root + "/resize.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  struct flock lock {};
  lock.l_type = F_WRLCK;
  const auto end = SteadyClock::now() + kResizePatience;
  while (file.is_open() && fcntl(file.get(), F_OFD_SETLK, &lock) != 0) {
    if (SteadyClock::now() > end) return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  return file;
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

}  // namespace

std::string call_resize(const std::vector<std::string>& words, std::uint32_t hosts,
                        const std::string& directory, const std::function<bool()>& is_stopped) {
  // The program may be named relative to the job file, whose folder nobody need be in.
  std::vector<std::string> command = {"/bin/sh", "-c", "cd \"$0\" && exec \"$@\"",
                                      directory.empty() ? "." : directory};
  command.insert(command.end(), words.begin(), words.end());
  command.push_back(std::to_string(hosts));
  try {
    RunningCommand running(command, "");
    const auto end = SteadyClock::now() + kResizePatience;
    while (!running.advance(kMostResizeOutput)) {
      if (is_stopped() || SteadyClock::now() > end) {
        running.give_up();
        break;
      }
      RunningCommand::wait_for_any({&running}, kResizeLook);
    }
    const CommandOutput& output = running.output();
    if (output.failure.empty()) return "";
    const std::string text = output.err.empty() ? output.out : output.err;
    return output.failure +
           (text.empty() ? "" : ": " + text.substr(0, text.find_last_not_of('\n') + 1));
  } catch (const std::exception& error) {
    return error.what();
  }
}

void release_hosts(const std::string& root, const IdleHosts& hosts, const JobRecord& ended) {
  if (hosts.resize.empty()) return;
  std::this_thread::sleep_for(hosts.idle);
  try {
    const UniqueFd lock = lock_of(root);
    if (!lock.is_open() || is_wanted(root, ended)) return;
    (void)call_resize(hosts.resize, 0, hosts.directory, [] { return false; });
  } catch (const std::exception&) {
    // The state folder is gone, and with it who would be told.
  }
}

}  // namespace chainmail::launch
