// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/folder/disk/job_places.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/jobs/folder/disk/ended_jobs.h"
#include "launcher/jobs/folder/disk/job_lock.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;

// Folders above it as well; those that are made are 0700.
void make_own_folder(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0) {
    // What the umask has taken away would lock out its owner.
    if (chmod(path.c_str(), 0700) != 0) throw system_error("cannot change the mode of " + path);
    return;
  }
  const int failure = errno;
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) return;
    throw SystemError("cannot keep the state of jobs in " + path + ": it is not a folder", ENOTDIR);
  }
  const std::size_t slash = path.find_last_of('/');
  if (failure != ENOENT || slash == std::string::npos || slash == 0) {
    errno = failure;
    throw system_error("cannot make " + path + "; CHAINMAIL_STATE can name another folder");
  }
  make_own_folder(path.substr(0, slash));
  make_own_folder(path);
}

bool is_minute_older(const struct stat& one, const struct stat& other) {
  return one.st_mtim.tv_sec + 60 < other.st_mtim.tv_sec;
}

}  // namespace

std::string jobs_folder(const std::string& root) { return root + "/jobs"; }

std::string unfinished_folder(const std::string& root) { return root + "/unfinished"; }

void make_job_places(const std::string& root) {
  for (const std::string& folder : {jobs_folder(root), unfinished_folder(root)}) {
    make_own_folder(folder);
    struct stat status {};
    if (stat(folder.c_str(), &status) != 0) throw system_error("cannot use " + folder);
    if (status.st_uid == geteuid()) continue;
    throw SystemError("the state of jobs in " + folder + " belongs to uid " +
                          std::to_string(status.st_uid) +
                          ": set CHAINMAIL_STATE to a folder of your own",
                      EPERM);
  }
}

void sync_jobs(const std::string& root) noexcept {
  const internal::UniqueFd folder(
      open(jobs_folder(root).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.is_open()) (void)fsync(folder.get());
}

void remove_unfinished(const std::string& root, const std::string& newest) noexcept {
  struct stat now {};
  if (lstat(newest.c_str(), &now) != 0) return;
  std::error_code error;
  fs::directory_iterator entries(unfinished_folder(root), error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
    struct stat status {};
    if (lstat(entries->path().c_str(), &status) != 0 || !is_minute_older(status, now)) continue;
    if (lock_state_of(entries->path().string(), false) == LockState::kHeld) continue;
    std::error_code ignored;
    fs::remove_all(entries->path(), ignored);
  }
}

void remove_job_folder(const std::string& root, const std::string& folder) {
  const fs::path path(folder);
  const std::string name = path.filename().string();
  // One that somebody has moved elsewhere goes out of sight where it is.
  const bool is_in_place = path.parent_path() == jobs_folder(root);
  const std::string hidden = is_in_place ? unfinished_folder(root) + "/" + name
                                         : (path.parent_path() / (".old-" + name)).string();
  if (rename(folder.c_str(), hidden.c_str()) != 0) throw system_error("cannot remove " + folder);
  forget_ended(root, name);
  std::error_code error;
  fs::remove_all(hidden, error);
  if (!error) return;
  throw SystemError("cannot remove all of " + hidden + ": " + error.message(), error.value());
}

}  // namespace chainmail::launch
