// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/shm/memory_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace chainmail::ops::shm {
namespace {

using internal::UniqueFd;

SystemError refused(int code) { return {std::strerror(code), code}; }

SystemError another_file(const std::string& why) {
  return {why + ", so it is another file", EPROTO};
}

// O_PATH asks for the right to look into the process and for nothing else: whatever the number
// leads to is not opened by it.
UniqueFd find(const std::string& path) {
  const auto look = [&path] { return UniqueFd(::open(path.c_str(), O_PATH | O_CLOEXEC)); };
  UniqueFd place = look();
  // The answer, too, when the process ends in the midst of the call.
  if (!place.is_open() && errno == EACCES) place = look();
  if (!place.is_open()) throw refused(errno == ESRCH ? ENOENT : errno);
  return place;
}

}  // namespace

UniqueFd open_memory_file(const std::string& path, std::size_t bytes) {
  const UniqueFd place = find(path);
  struct stat status {};
  if (::fstat(place.get(), &status) != 0) throw refused(errno);
  if (!S_ISREG(status.st_mode)) throw another_file("it is no regular file");
  if (static_cast<std::size_t>(status.st_size) != bytes) {
    throw another_file("it has " + std::to_string(status.st_size) + " bytes instead of " +
                       std::to_string(bytes));
  }
  UniqueFd file(::open(("/proc/self/fd/" + std::to_string(place.get())).c_str(),
                       O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) throw refused(errno);
  // A file that nobody can shrink cannot give SIGBUS.
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) throw another_file("its size is not sealed");
  return file;
}

}  // namespace chainmail::ops::shm
