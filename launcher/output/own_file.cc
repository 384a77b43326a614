// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/output/own_file.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/error.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

// Where the link at `name` leads, once it is known to be root's or this user's: looked at and read
// through one descriptor, so that nobody can put another in its place between.
std::string target_of(int folder, const std::string& name, const std::string& path) {
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
  std::string target(PATH_MAX, '\0');
  const ssize_t length = readlinkat(link.get(), "", target.data(), target.size());
  if (length < 0) throw system_error("cannot write " + path);
  target.resize(static_cast<std::size_t>(length));
  if (target.front() == '/') return target;
  return (std::filesystem::path(name).parent_path() / target).string();
}

}  // namespace

UniqueFd open_own(int folder, const std::string& name, int flags, mode_t mode,
                  const std::string& path) {
  // A named pipe would wait for somebody to read it.
  const int more = O_CLOEXEC | O_NONBLOCK;
  UniqueFd fd(::openat(folder, name.c_str(), flags | more | O_NOFOLLOW, mode));
  if (!fd.is_open() && (errno == ELOOP || errno == ENOTDIR)) {
    fd.reset(::openat(folder, target_of(folder, name, path).c_str(), flags | more, mode));
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
