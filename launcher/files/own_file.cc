// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/files/own_file.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

constexpr int kMostLinks = 40;  // as the kernel has it

// A slash at the end would have the link before it followed, whoever's it is.
std::string without_end(std::string name) {
  const auto ends_with = [&name](const std::string& end) {
    return name.size() > end.size() && name.ends_with(end);
  };
  while (ends_with("/") || ends_with("/.")) name.pop_back();
  return name;
}

struct Target {
  std::string name;
  // One of the kernel's, such as /proc/self/fd/1: it leads to what is open, and its text does not.
  bool is_magic = false;
};

// Where the link at `name` leads, once it is known to be root's or this user's: looked at and read
// through one descriptor, so that nobody can put another in its place between.
Target target_of(int folder, const std::string& name, const std::string& path) {
  const UniqueFd link(::openat(folder, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!link.is_open() || fstat(link.get(), &status) != 0)
    throw system_error("cannot write " + path);
  if (!S_ISLNK(status.st_mode)) throw SystemError("cannot write " + path, ENOTDIR);
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    throw SystemError(
        "cannot write " + path + ", which is a link of uid " + std::to_string(status.st_uid),
        ELOOP);
  }
  struct statfs system {};
  if (fstatfs(link.get(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC) return {name, true};
  std::string target(PATH_MAX, '\0');
  const ssize_t length = readlinkat(link.get(), "", target.data(), target.size());
  if (length <= 0) throw system_error("cannot write " + path);
  target.resize(static_cast<std::size_t>(length));
  if (target.front() == '/') return {without_end(std::move(target))};
  return {without_end((std::filesystem::path(name).parent_path() / target).string())};
}

}  // namespace

UniqueFd open_own(int folder, const std::string& name, int flags, mode_t mode,
                  const std::string& path) {
  // A named pipe would wait for somebody to read it.
  const int more = O_CLOEXEC | O_NONBLOCK;
  Target at{without_end(name)};
  UniqueFd fd;
  for (int links = 0;; ++links) {
    const int follow = at.is_magic ? 0 : O_NOFOLLOW;
    fd.reset(::openat(folder, at.name.c_str(), flags | more | follow, mode));
    const bool is_link = !fd.is_open() && (errno == ELOOP || errno == ENOTDIR) && !at.is_magic;
    if (!is_link || links == kMostLinks) break;
    at = target_of(folder, at.name, path);
  }
  if (!fd.is_open()) throw system_error("cannot write " + path);
  struct stat status {};
  if (fstat(fd.get(), &status) == 0 && S_ISFIFO(status.st_mode)) {
    throw SystemError("cannot write " + path + ", which is a named pipe", EINVAL);
  }
  (void)fcntl(fd.get(), F_SETFL, flags & (O_APPEND | O_PATH));
  return fd;
}

}  // namespace chainmail::launch
