// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/folder/disk/state_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/unique_fd.h"

namespace chainmail::launch {
namespace {

using internal::UniqueFd;

constexpr char kReserve[] = ".reserve";
constexpr std::size_t kMostFileBytes = std::size_t{16} << 20;

// False with errno.
bool write_text(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(file, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

// Network file systems tell of a full disk as late as this.
bool close_whole(UniqueFd& file) { return fsync(file.get()) == 0 && ::close(file.release()) == 0; }

// Of the names in it; some file systems have nothing to do here, and say so.
void sync_folder(int folder) noexcept { (void)fsync(folder); }

std::string why() { return std::strerror(errno); }

// Nothing where it was replaced while it was read, as network file systems have it.
std::optional<std::string> read_once(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!file.is_open() && errno == ESTALE) return std::nullopt;
  if (!file.is_open()) throw system_error("cannot read " + path);
  struct stat status {};
  if (fstat(file.get(), &status) == 0 && !S_ISREG(status.st_mode)) {
    throw SystemError("cannot read " + path + ", which is not a file", EINVAL);
  }
  std::string text;
  std::string block(16384, '\0');
  while (true) {
    const ssize_t count = ::read(file.get(), block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == ESTALE) return std::nullopt;
    if (count < 0) throw system_error("cannot read " + path);
    if (count == 0) return text;
    text.append(block, 0, static_cast<std::size_t>(count));
    if (text.size() > kMostFileBytes) {
      throw SystemError("cannot read " + path + ": it is longer than 16 MiB", EFBIG);
    }
  }
}

}  // namespace

std::string replace_file_of(int folder, const std::string& name, std::string_view text) {
  // Always the same name, so that nothing is left of one who was killed; one process writes.
  const std::string next = "." + name + ".new";
  (void)unlinkat(folder, next.c_str(), 0);
  UniqueFd file(openat(folder, next.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const bool is_written = file.is_open() && fchmod(file.get(), 0600) == 0 &&
                          write_text(file.get(), text) && close_whole(file) &&
                          renameat(folder, next.c_str(), folder, name.c_str()) == 0;
  if (!is_written) {
    std::string reason = why();
    (void)unlinkat(folder, next.c_str(), 0);
    return reason;
  }
  sync_folder(folder);
  return "";
}

void make_reserve(int folder) noexcept {
  UniqueFd file(openat(folder, kReserve, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  // Written, since file systems do not keep what is only promised.
  static constexpr std::array<char, 4096> kBlock{'r'};
  bool is_whole = file.is_open() && fchmod(file.get(), 0600) == 0;
  for (std::size_t at = 0; is_whole && at < kReserveBytes; at += kBlock.size()) {
    is_whole = write_text(file.get(), {kBlock.data(), kBlock.size()});
  }
  if (!is_whole || !close_whole(file)) remove_reserve(folder);
}

void remove_reserve(int folder) noexcept { (void)unlinkat(folder, kReserve, 0); }

std::string replace_from_reserve(int folder, const std::string& name, std::string_view text) {
  if (text.size() > kReserveBytes) return "there is not so much room in reserve";
  UniqueFd file(openat(folder, kReserve, O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  const bool is_written = file.is_open() && write_text(file.get(), text) &&
                          ftruncate(file.get(), static_cast<off_t>(text.size())) == 0 &&
                          close_whole(file) &&
                          renameat(folder, kReserve, folder, name.c_str()) == 0;
  if (!is_written) return why();
  sync_folder(folder);
  return "";
}

std::string overwrite_file_of(int folder, const std::string& name, std::string_view text) {
  UniqueFd file(openat(folder, name.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!file.is_open() || fstat(file.get(), &status) != 0) return why();
  const auto room = static_cast<std::size_t>(status.st_size);
  if (text.size() > room) return "it is longer than what is there";
  std::string filled(text);
  filled.append(room - filled.size(), ' ');
  return write_text(file.get(), filled) && close_whole(file) ? "" : why();
}

std::string read_whole_file(const std::string& path) {
  constexpr int kTries = 5;
  for (int tries = 0; tries < kTries; ++tries) {
    if (auto text = read_once(path)) return std::move(*text);
  }
  throw SystemError("cannot read " + path + ": it is replaced all the time", ESTALE);
}

}  // namespace chainmail::launch
