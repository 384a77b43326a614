// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/shm/memory/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>

#include "base/error.h"

namespace chainmail::ops::shm {
namespace {

using internal::UniqueFd;

SystemError refused(int code) { return {std::strerror(code), code}; }

SystemError another_file(const std::string& why) {
  return {why + ", so it is another file", EPROTO};
}

/// Whether the owner of `path` is ending or has ended: its descriptors belong to root from the
/// moment that it gives up its memory until its parent has asked for its exit code.
bool has_owner_ended(const std::string& path) {
  constexpr unsigned kExiting = 4;  // PF_EXITING of the kernel
  const UniqueFd file(::open((path.substr(0, path.find("/fd/")) + "/stat").c_str(), O_CLOEXEC));
  if (!file.is_open()) return errno == ENOENT;
  std::array<char, 1024> text{};
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size < 0) return errno == ESRCH;
  const std::string line(text.data(), static_cast<std::size_t>(size));
  // "pid (name) state parent group session terminal terminal_group flags ..."
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return false;
  std::istringstream rest(line.substr(name_end + 1));
  char state = ' ';
  std::array<long, 5> others{};
  unsigned flags = 0;
  rest >> state;
  for (long& other : others) rest >> other;
  rest >> flags;
  return state == 'Z' || state == 'X' || (flags & kExiting) != 0;
}

// O_PATH asks for the right to look into the process and for nothing else: whatever the number
// leads to is not opened by it.
UniqueFd find(const std::string& path) {
  UniqueFd place(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (place.is_open()) return place;
  const int code = errno;
  const bool is_gone = code == ESRCH || (code == EACCES && has_owner_ended(path));
  throw refused(is_gone ? ENOENT : code);
}

}  // namespace

void reserve(const UniqueFd& file, std::size_t begin, std::size_t bytes) {
  int code = 0;
  do {
    code = ::posix_fallocate(file.get(), static_cast<off_t>(begin), static_cast<off_t>(bytes));
  } while (code == EINTR);
  errno = code;
  if (code != 0) throw system_error("posix_fallocate");
}

UniqueFd make_memory_file(const char* name, std::size_t bytes, bool reserves) {
  rlimit limit{};
  // Beyond this limit ftruncate() would end the process by SIGXFSZ.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < bytes) {
    errno = EFBIG;
    throw system_error("limit on file sizes (ulimit -f)");
  }
  UniqueFd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.is_open()) throw system_error("memfd_create");
  if (reserves) {
    reserve(file, 0, bytes);
  } else if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
    throw system_error("ftruncate");
  }
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    throw system_error("fcntl(F_ADD_SEALS)");
  }
  return file;
}

UniqueFd open_memory_file(const std::string& path, std::size_t bytes) {
  const UniqueFd place = find(path);
  struct stat status {};
  if (::fstat(place.get(), &status) != 0) throw refused(errno);
  if (!S_ISREG(status.st_mode) || status.st_nlink != 0) {
    throw another_file("it is not an unnamed regular file");
  }
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
