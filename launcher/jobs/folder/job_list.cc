// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/folder/job_list.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "launcher/hosts/host_text.h"
#include "launcher/job/nearest.h"
#include "launcher/job/options.h"
#include "launcher/job/text.h"
#include "launcher/jobs/folder/disk/ended_jobs.h"
#include "launcher/jobs/folder/disk/job_lock.h"
#include "launcher/jobs/folder/disk/job_places.h"
#include "launcher/jobs/folder/disk/state_file.h"
#include "launcher/jobs/folder/launcher_process.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

// What is in the folder of all jobs, but for what begins with a dot: jobs that are being made, and
// what file systems keep there.
std::vector<std::string> names_of_jobs(const std::string& root) {
  const std::string folder = jobs_folder(root);
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    std::string name = entries->path().filename().string();
    std::error_code ignored;
    const bool is_folder = fs::is_directory(entries->symlink_status(ignored));
    if (name.front() != '.' && is_folder) names.push_back(std::move(name));
  }
  if (error) throw SystemError("cannot read " + folder + ": " + error.message(), error.value());
  return names;
}

JobRecord record_in(const std::string& folder) {
  const std::string path = folder + "/" + kStateFile;
  const std::string text = read_whole_file(path);
  try {
    return record_of(text);
  } catch (const SystemError& error) {
    throw SystemError(path + ": " + error.what(), error.native_code());
  }
}

// Empty: it may be alive.
std::string why_lost(const std::string& folder, const JobRecord::Launcher& launcher) {
  const LauncherTrace trace = trace_of(launcher);
  switch (lock_state_of(folder, trace == LauncherTrace::kElsewhere)) {
    case LockState::kHeld:
      return "";
    case LockState::kFree:
      break;
    case LockState::kUnknown:
      if (trace == LauncherTrace::kAlive || trace == LauncherTrace::kElsewhere) return "";
  }
  const std::string host = launcher.host.empty() ? "its machine" : launcher.host;
  const std::string process = "its launcher, process " + std::to_string(launcher.pid);
  switch (trace) {
    case LauncherTrace::kRebooted:
      return host + " has been rebooted since";
    case LauncherTrace::kElsewhere:
      return process + " on " + host + ", is gone: it was killed, or " + host +
             " was switched off or rebooted";
    case LauncherTrace::kAlive:
      return process + ", has let go of it";
    case LauncherTrace::kGone:
      break;
  }
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) == 0 && disk.f_bavail == 0) {
    return process +
           ", is gone: its end could not be written, since the disk is full, or it was "
           "killed";
  }
  return process + ", is gone: it was killed, perhaps for want of memory";
}

std::optional<FoundJob> read_or_tell(const std::string& folder, const std::string& name,
                                     std::vector<std::string>& unreadable) {
  try {
    FoundJob job = read_job(folder);
    if (job.record.id == name) return job;
    unreadable.push_back(name + ": its state is that of " + job.record.id);
  } catch (const SystemError& error) {
    // It has been removed since its name was read, or somebody is at work there.
    std::error_code ignored;
    const bool is_there = fs::exists(folder, ignored);
    if (is_there && lock_state_of(folder, false) != LockState::kHeld) {
      unreadable.push_back(name + ": " + error.what());
    }
  }
  return std::nullopt;
}

bool is_newer(const FoundJob& one, const FoundJob& other) {
  return std::tie(one.record.created_ms, one.record.id) >
         std::tie(other.record.created_ms, other.record.id);
}

// The three whose id or name takes the fewest changes.
std::string nearest_jobs(const std::vector<std::string>& ids, const std::string& name) {
  constexpr std::size_t kMostLetters = 80;
  constexpr std::size_t kShown = 3;
  struct Candidate {
    std::size_t distance;
    std::string id;
  };
  const std::string wanted = name.substr(0, kMostLetters);
  std::vector<Candidate> candidates;
  for (const std::string& id : ids) {
    const std::size_t to_name = edit_distance(wanted, std::string(job_name_of(id)));
    candidates.push_back({std::min(to_name, edit_distance(wanted, id)), id});
  }
  const std::size_t shown = std::min(candidates.size(), kShown);
  const auto end = candidates.begin() + static_cast<std::ptrdiff_t>(shown);
  std::partial_sort(candidates.begin(), end, candidates.end(),
                    [](const Candidate& one, const Candidate& other) {
                      return std::tie(one.distance, one.id) < std::tie(other.distance, other.id);
                    });
  std::vector<std::string> names;
  for (auto candidate = candidates.begin(); candidate != end; ++candidate) {
    names.push_back(candidate->id);
  }
  return joined(names, ", ");
}

// One that cannot be read may be the latest; only where there is no other it is an error.
FoundJob latest_of(const std::string& root, const std::vector<std::string>& ids) {
  std::optional<FoundJob> latest;
  std::optional<SystemError> failure;
  for (const std::string& id : ids) {
    try {
      FoundJob job = read_job(jobs_folder(root) + "/" + id);
      if (!latest || is_newer(job, *latest)) latest = std::move(job);
    } catch (const SystemError& error) {
      failure.emplace(error);
    }
  }
  if (!latest) throw SystemError(*failure);
  return std::move(*latest);
}

FoundJob job_of_folder(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::canonical(path, error);
  if (error) throw UsageError("there is no folder " + in_quotes(path) + ": " + error.message());
  return read_job(folder.string());
}

}  // namespace

FoundJob read_job(const std::string& folder) {
  FoundJob job{folder, record_in(folder)};
  if (is_ended(job.record.phase)) return job;
  std::string reason = why_lost(folder, job.record.launcher);
  if (reason.empty()) return job;
  // It may have ended between the two looks.
  job.record = record_in(folder);
  if (is_ended(job.record.phase)) return job;
  job.record.phase = JobPhase::kLost;
  job.record.reason = std::move(reason);
  return job;
}

std::vector<FoundJob> list_jobs(const std::string& root, bool with_ended,
                                std::vector<std::string>& unreadable) {
  // In this order, so that no job is noted as ended whose name has not been read.
  std::unordered_set<std::string> ended = noted_as_ended(root);
  std::vector<FoundJob> jobs;
  for (const std::string& name : names_of_jobs(root)) {
    const bool is_noted = ended.erase(name) != 0;
    if (is_noted && !with_ended) continue;
    auto job = read_or_tell(jobs_folder(root) + "/" + name, name, unreadable);
    if (!job) continue;
    const bool has_ended = is_ended(job->record.phase) && job->record.phase != JobPhase::kLost;
    // By a launcher that could not note it.
    if (has_ended && !is_noted) note_ended(root, name);
    if (with_ended || !has_ended) jobs.push_back(std::move(*job));
  }
  // Of jobs that somebody has removed by hand.
  for (const std::string& name : ended) forget_ended(root, name);
  std::sort(jobs.begin(), jobs.end(), is_newer);
  return jobs;
}

FoundJob find_job(const std::string& root, const std::string& name) {
  if (name.find('/') != std::string::npos) return job_of_folder(name);
  // Without a look at all others, of which there may be thousands.
  const std::string folder = jobs_folder(root) + "/" + name;
  std::error_code error;
  if (is_job_id(name) && fs::is_directory(folder, error)) return read_job(folder);
  const std::vector<std::string> all = names_of_jobs(root);
  std::vector<std::string> of_name;
  std::vector<std::string> beginning;
  for (const std::string& id : all) {
    if (!is_job_id(id)) continue;
    if (job_name_of(id) == name) of_name.push_back(id);
    if (!name.empty() && id.starts_with(name)) beginning.push_back(id);
  }
  if (!of_name.empty()) return latest_of(root, of_name);
  if (beginning.size() == 1) return read_job(jobs_folder(root) + "/" + beginning.front());
  if (beginning.size() > 1) {
    std::sort(beginning.begin(), beginning.end());
    throw UsageError(in_quotes(name) + " is the beginning of " + std::to_string(beginning.size()) +
                     " jobs: " + listed(beginning));
  }
  const std::string nearest = nearest_jobs(all, name);
  throw UsageError("there is no job " + in_quotes(name) + " in " + printable(jobs_folder(root)) +
                   (nearest.empty() ? "" : "; those most like it: " + printable(nearest)));
}

std::string unreadable_folder(const std::string& root, const std::string& name) {
  std::vector<std::string> unreadable;
  const bool is_name = !name.empty() && name.front() != '.' && name.find('/') == std::string::npos;
  const std::string folder = jobs_folder(root) + "/" + name;
  std::error_code error;
  if (!is_name || !fs::is_directory(fs::symlink_status(folder, error))) return "";
  (void)read_or_tell(folder, name, unreadable);
  return unreadable.empty() ? "" : folder;
}

}  // namespace chainmail::launch
