// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/folder/disk/job_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "base/error.h"
#include "launcher/job/text.h"
#include "launcher/process/children.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

constexpr std::chrono::milliseconds kTurnLook{200};

struct flock whole_file() {
  struct flock region {};
  region.l_type = F_WRLCK;
  region.l_whence = SEEK_SET;
  return region;  // from 0, without an end
}

// File systems of programs, and of virtual machines' hosts: few pass locks on, and none says so.
bool keeps_locks_to_itself(std::string_view type) {
  for (const char* passes_on : {"fuse.glusterfs", "fuse.ceph-fuse", "fuse.juicefs"}) {
    if (type == passes_on) return false;
  }
  return type.starts_with("fuse") || type == "virtiofs" || type == "9p";
}

bool is_mounted_with_local_locks(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0) return false;
  return has_local_locks(read_file("/proc/self/mountinfo"), major(status.st_dev),
                         minor(status.st_dev));
}

}  // namespace

UniqueFd take_job_lock(int folder, const std::string& path) {
  UniqueFd file(
      openat(folder, kLockFile, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.is_open()) throw system_error("cannot make " + path + "/" + kLockFile);
  (void)fchmod(file.get(), 0600);
  struct flock region = whole_file();
  if (fcntl(file.get(), F_OFD_SETLK, &region) == 0) return file;
  const SystemError failure = system_error("cannot lock " + path + "/" + kLockFile);
  throw SystemError(std::string(failure.what()) +
                        "; a job's state needs a file system with locks: set CHAINMAIL_STATE to a "
                        "folder on another one",
                    failure.native_code());
}

UniqueFd take_turn(const std::string& root, const char* name,
                   const std::function<bool()>& is_over) {
  UniqueFd file(open((root + "/" + name).c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
  struct flock region = whole_file();
  while (file.is_open() && fcntl(file.get(), F_OFD_SETLK, &region) != 0) {
    if (is_over()) return {};
    std::this_thread::sleep_for(kTurnLook);
  }
  return file;
}

LockState lock_state_of(const std::string& folder, bool is_elsewhere) {
  const std::string path = folder + "/" + kLockFile;
  // To ask needs no right to write. Not a pipe in its place, which would be waited for.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.is_open()) return LockState::kUnknown;
  struct flock region = whole_file();
  if (fcntl(file.get(), F_OFD_GETLK, &region) != 0) return LockState::kUnknown;
  if (region.l_type != F_UNLCK) return LockState::kHeld;
  if (is_elsewhere && is_mounted_with_local_locks(file.get())) return LockState::kUnknown;
  return LockState::kFree;
}

// "36 35 0:42 / /home rw,relatime shared:1 - nfs server:/home rw,vers=3,local_lock=all"
bool has_local_locks(std::string_view mounts, unsigned int major_number,
                     unsigned int minor_number) {
  constexpr std::size_t kDevice = 2;
  const std::string device = std::to_string(major_number) + ":" + std::to_string(minor_number);
  for (const std::string& line : split(mounts, '\n')) {
    const std::vector<std::string> fields = split(line, ' ');
    if (fields.size() <= kDevice || fields[kDevice] != device) continue;
    const auto dash = std::find(fields.begin() + kDevice, fields.end(), "-");
    if (fields.end() - dash < 4) continue;
    if (keeps_locks_to_itself(dash[1])) return true;
    for (const std::string& option : split(dash[3], ',')) {
      for (const char* local :
           {"nolock", "local_lock=all", "local_lock=posix", "localflock", "nobrl"}) {
        if (option == local) return true;
      }
    }
  }
  return false;
}

}  // namespace chainmail::launch
