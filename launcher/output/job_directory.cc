// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/job_directory.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <utility>
#include <vector>

#include "launcher/fork_exec.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using internal::UniqueFd;

// A launcher that has just made its folder may not hold the lock yet.
constexpr time_t kYoungSeconds = 60;

UniqueFd lock_of(const std::string& folder) {
  UniqueFd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd.is_open() && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.reset();
  return fd;
}

void remove_tree(const std::string& path) noexcept {
  std::error_code ignored;
  fs::remove_all(path, ignored);
}

void remove_left_behind(const std::string& parent) {
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (entry.path().filename().string().rfind(JobDirectory::kPrefix, 0) != 0) continue;
    struct stat status {};
    if (lstat(entry.path().c_str(), &status) != 0 || !S_ISDIR(status.st_mode) ||
        status.st_uid != geteuid() || time(nullptr) - status.st_mtime < kYoungSeconds) {
      continue;
    }
    const UniqueFd lock = lock_of(entry.path());
    if (lock.is_open()) remove_tree(entry.path());
  }
}

// Of this program, by exec: a copy of this process would hold the job's secret.
pid_t start_remover(const std::string& path, int parent_lives) {
  std::vector<std::string> words = {"launcher", "--outlive", path};
  const std::vector<char*> arguments = pointers_to(words);
  const Forked child = fork_to_exec([&] {
    setsid();  // no signal of a terminal or to the launcher's group comes there
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (dup2(parent_lives, STDIN_FILENO) >= 0 && dup2(null, STDOUT_FILENO) >= 0 &&
        dup2(null, STDERR_FILENO) >= 0) {
      execv("/proc/self/exe", arguments.data());
    }
    _exit(127);
  });
  return child.pid;
}

}  // namespace

std::string JobDirectory::parent() {
  const char* chosen = std::getenv("TMPDIR");
  return chosen != nullptr && *chosen == '/' ? chosen : "/tmp";
}

const std::string& JobDirectory::make() {
  if (std::exchange(has_tried_, true)) return path_;
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return path_;
  const UniqueFd parent_lives(ends[0]);
  alive_.reset(ends[1]);
  std::string path = parent() + "/" + kPrefix + std::to_string(getpid()) + ".XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return path_;
  lock_ = lock_of(path);
  remover_ = start_remover(path, parent_lives.get());
  if (remover_ < 0) {
    remove_tree(path);
  } else {
    path_ = std::move(path);
  }
  return path_;
}

JobDirectory::~JobDirectory() {
  if (path_.empty()) return;
  remove_tree(path_);
  // Where a lost agent's orphans had to be ended, it has gone with them, and its number may be
  // another's.
  if (waitpid(remover_, nullptr, WNOHANG) != 0) return;
  kill(remover_, SIGKILL);
  waitpid(remover_, nullptr, 0);
}

void outlive_launcher(const std::string& path) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGUSR1, SIGUSR2}) {
    signal(number, SIG_IGN);
  }
  prctl(PR_SET_NAME, "chainmail-tidy");
  try {
    remove_left_behind(JobDirectory::parent());
  } catch (const std::exception&) {
    // Then nothing of ours is there.
  }
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) < 0 && errno == EINTR) {
  }
  remove_tree(path);
}

}  // namespace chainmail::launch
