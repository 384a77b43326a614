// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>

#include "launcher/process/children.h"

namespace chainmail::launch {
namespace {

constexpr std::chrono::milliseconds kLockPoll{50};
// So often somebody has to be seen who lives: one that is being killed does so for a moment, and
// between two looks the lock may have another owner, or none.
constexpr int kLooks = 4;
// In a container the kernel shows no lock whose owner has ended or is outside: it may be about to
// be free, or another job's. How long to wait for that beyond what this job's own would outlive it.
constexpr std::chrono::milliseconds kUnseen{5000};

// /proc/locks: "1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF"; who took it, though others may
// have it by now. 0: not known, as for what runs in another container.
pid_t owner_of(int fd) {
  struct stat status {};
  if (fstat(fd, &status) != 0) return 0;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, how, what, place;
    pid_t owner = 0;
    if (!(words >> number >> kind >> how >> what >> owner >> place) || kind != "FLOCK") continue;
    unsigned int major_number = 0;
    unsigned int minor_number = 0;
    unsigned long inode = 0;
    char colon = 0;
    std::istringstream parts(place);
    parts >> std::hex >> major_number >> colon >> minor_number >> colon >> std::dec >> inode;
    if (inode == status.st_ino && makedev(major_number, minor_number) == status.st_dev)
      return owner;
  }
  return 0;
}

}  // namespace

FileLock::Held FileLock::take(const std::string& path, std::chrono::milliseconds outlives,
                              const std::function<void(pid_t owner)>& on_wait) {
  file_ = internal::UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file_.is_open()) return {};
  int looks = 0;
  const auto unseen_until = std::chrono::steady_clock::now() + outlives + kUnseen;
  for (int waits = 0; ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0;) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return {};  // a file system without locks
    const pid_t owner = owner_of(file_.get());
    const bool may_have_ended = owner == 0 && std::chrono::steady_clock::now() < unseen_until;
    if (may_have_ended || has_ended(owner)) {
      looks = 0;
      // One that has just been given back had nobody when it was asked about.
      if (++waits == 2) on_wait(owner);
    } else if (++looks == kLooks) {
      file_.reset();
      return {false, owner};
    }
    std::this_thread::sleep_for(kLockPoll);
  }
  (void)keeper_.start({kReaperName, "--keep-lock", std::to_string(outlives.count())}, "",
                      file_.get());
  return {};
}

void keep_lock(std::chrono::milliseconds outlives) {
  be_reaper();
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
  std::this_thread::sleep_for(outlives);
}

}  // namespace chainmail::launch
