// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/commands/files/growing_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/error.h"

namespace chainmail::launch {
namespace {

constexpr std::size_t kReadBytes = std::size_t{64} << 10;

// At a place of a file; short only at its end.
ssize_t read_at(int file, char* out, std::size_t bytes, std::uint64_t at) {
  ssize_t count = 0;
  do {
    count = ::pread(file, out, bytes, static_cast<off_t>(at));
  } while (count < 0 && errno == EINTR);
  return count;
}

}  // namespace

GrowingFile::GrowingFile(std::vector<std::string> places, std::optional<std::uint64_t> last_lines)
    : places_(std::move(places)), last_lines_(last_lines) {}

std::string_view GrowingFile::read() {
  if (!file_.is_open() && !open()) return {};
  ssize_t count = read_block();
  if (count == 0 && has_more()) count = read_block();
  if (count < 0 && errno == ESTALE) {
    // Replaced on the server; the next call finds the new one.
    file_.reset();
    return {};
  }
  if (count < 0) throw system_error("cannot read " + path_);
  at_ += static_cast<std::uint64_t>(count);
  return {block_.data(), static_cast<std::size_t>(count)};
}

ssize_t GrowingFile::read_block() {
  block_.resize(kReadBytes);
  return read_at(file_.get(), block_.data(), block_.size(), at_);
}

bool GrowingFile::open() {
  for (const std::string& place : places_) {
    // A named pipe would be waited for.
    file_.reset(::open(place.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file_.is_open()) {
      path_ = place;
      break;
    }
    if (errno != ENOENT && errno != ENOTDIR && errno != ESTALE) {
      throw system_error("cannot read " + place);
    }
  }
  if (!file_.is_open()) return false;
  struct stat status {};
  if (fstat(file_.get(), &status) != 0) throw system_error("cannot read " + path_);
  if (!S_ISREG(status.st_mode)) {
    throw SystemError("cannot read " + path_ + ", which is not a file", EINVAL);
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const bool is_same = was_there_ && device_ == status.st_dev && inode_ == status.st_ino;
  if (!is_same) at_ = 0;
  if (!was_there_ && last_lines_) at_ = start_of_last_lines(file_.get(), size, *last_lines_);
  if (size < at_) at_ = 0;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  was_there_ = true;
  return true;
}

// At the end of what is known of it. Of a file that was cut all is new, and of another one in its
// place.
bool GrowingFile::has_more() {
  struct statx status {};
  // Asks the server, where there is one.
  constexpr int kFlags = AT_EMPTY_PATH | AT_STATX_FORCE_SYNC;
  if (statx(file_.get(), "", kFlags, STATX_SIZE, &status) != 0) return false;
  if (status.stx_size > at_) return true;
  if (status.stx_size < at_) {
    at_ = 0;
    return true;
  }
  struct stat other {};
  if (stat(path_.c_str(), &other) != 0) return false;
  if (other.st_dev == device_ && other.st_ino == inode_) return false;
  file_.reset();
  return open();
}

std::uint64_t start_of_last_lines(int file, std::uint64_t size, std::uint64_t lines) {
  if (lines == 0) return size;
  std::string block(kReadBytes, '\0');
  for (std::uint64_t end = size; end > 0;) {
    const std::uint64_t bytes = std::min<std::uint64_t>(end, block.size());
    const std::uint64_t begin = end - bytes;
    const ssize_t count = read_at(file, block.data(), bytes, begin);
    if (count != static_cast<ssize_t>(bytes)) return begin;  // it is being cut
    for (std::uint64_t at = end; at > begin; --at) {
      // The end of the last line begins no other.
      const bool is_end = block[at - 1 - begin] == '\n' && at != size;
      if (is_end && --lines == 0) return at;
    }
    end = begin;
  }
  return 0;
}

void write_out(int out, std::string_view bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(out, bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno == EAGAIN) {
      // Somebody who shares it has said that it must not wait.
      pollfd writable{out, POLLOUT, 0};
      (void)::poll(&writable, 1, -1);
    } else if (errno != EINTR) {
      throw system_error("cannot write " + what);
    }
  }
}

}  // namespace chainmail::launch
