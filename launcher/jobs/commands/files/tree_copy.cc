// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/jobs/commands/files/tree_copy.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/unique_fd.h"
#include "launcher/jobs/commands/files/growing_file.h"

namespace chainmail::launch {
namespace {

namespace fs = std::filesystem;
using internal::UniqueFd;

constexpr mode_t kModeBits = 0777;

class TreeCopy {
 public:
  explicit TreeCopy(const IsInterrupted& is_interrupted) : is_interrupted_(is_interrupted) {}

  void copy(const std::string& from, const std::string& to) {
    struct stat status {};
    if (lstat(from.c_str(), &status) != 0) throw system_error("cannot copy " + from);
    switch (status.st_mode & S_IFMT) {
      case S_IFREG:
        return copy_file(from, to);
      case S_IFDIR:
        return copy_folder(from, to, status);
      case S_IFLNK:
        return copy_link(from, to, status);
      default:
        left_out_.push_back(from);
    }
  }
  // Only now, since nobody may write into some of them.
  void finish() {
    for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder) {
      const bool is_done = chmod(folder->path.c_str(), folder->mode) == 0 &&
                           utimensat(AT_FDCWD, folder->path.c_str(), folder->times.data(), 0) == 0;
      if (!is_done) throw system_error("cannot give " + folder->path + " its mode and time");
    }
  }
  [[nodiscard]] std::vector<std::string> left_out() && { return std::move(left_out_); }

 private:
  using Times = std::array<timespec, 2>;
  struct MadeFolder {
    std::string path;
    mode_t mode;
    Times times;
  };

  static Times times_of(const struct stat& status) { return {status.st_atim, status.st_mtim}; }

  void check_interrupt() const {
    if (is_interrupted_()) throw SystemError("interrupted: nothing was copied", EINTR);
  }

  void copy_folder(const std::string& from, const std::string& to, const struct stat& status) {
    if (mkdir(to.c_str(), 0700) != 0) throw system_error("cannot make " + to);
    folders_.push_back({to, status.st_mode & kModeBits, times_of(status)});
    // By name, so that no folder is open while those in it are copied, however deep they lie.
    std::vector<std::string> names;
    std::error_code error;
    fs::directory_iterator entries(from, error);
    for (; !error && entries != fs::directory_iterator(); entries.increment(error)) {
      names.push_back(entries->path().filename().string());
    }
    if (error) throw SystemError("cannot read " + from + ": " + error.message(), error.value());
    for (const std::string& name : names) {
      check_interrupt();
      copy(from + "/" + name, to + "/" + name);
    }
  }

  void copy_file(const std::string& from, const std::string& to) {
    const UniqueFd in(open(from.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (!in.is_open() || fstat(in.get(), &status) != 0) throw system_error("cannot read " + from);
    UniqueFd out(open(to.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!out.is_open()) throw system_error("cannot make " + to);
    block_.resize(std::size_t{1} << 20);
    while (true) {
      check_interrupt();
      const ssize_t count = ::read(in.get(), block_.data(), block_.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) throw system_error("cannot read " + from);
      if (count == 0) break;
      write_out(out.get(), {block_.data(), static_cast<std::size_t>(count)}, to);
    }
    const Times times = times_of(status);
    const bool is_done = fchmod(out.get(), status.st_mode & kModeBits) == 0 &&
                         futimens(out.get(), times.data()) == 0 && ::close(out.release()) == 0;
    if (!is_done) throw system_error("cannot write " + to);
  }

  static void copy_link(const std::string& from, const std::string& to, const struct stat& status) {
    std::error_code error;
    const fs::path target = fs::read_symlink(from, error);
    if (!error) fs::create_symlink(target, to, error);
    if (error) throw SystemError("cannot copy " + from + ": " + error.message(), error.value());
    const Times times = times_of(status);
    (void)utimensat(AT_FDCWD, to.c_str(), times.data(), AT_SYMLINK_NOFOLLOW);
  }

  const IsInterrupted& is_interrupted_;
  std::vector<MadeFolder> folders_;
  std::vector<std::string> left_out_;
  std::string block_;
};

}  // namespace

std::vector<std::string> copy_tree(const std::string& from, const std::string& to,
                                   const IsInterrupted& is_interrupted) {
  TreeCopy copy(is_interrupted);
  copy.copy(from, to);
  copy.finish();
  return std::move(copy).left_out();
}

CopyPlace::CopyPlace(std::string final_path) : final_path_(std::move(final_path)) {
  fs::path parent = fs::path(final_path_).parent_path();
  if (parent.empty()) parent = ".";
  std::string path = (parent / ".chainmail-cp.XXXXXX").string();
  if (mkdtemp(path.data()) == nullptr)
    throw system_error("cannot make a folder in " + parent.string());
  path_ = std::move(path);
}

CopyPlace::~CopyPlace() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void CopyPlace::publish(const std::string& name) {
  const std::string from = path_ + "/" + name;
  struct stat status {};
  if (lstat(from.c_str(), &status) != 0) throw system_error("cannot use " + from);
  if (!S_ISDIR(status.st_mode)) {
    if (rename(from.c_str(), final_path_.c_str()) == 0) return;
    throw system_error("cannot make " + final_path_);
  }
  // To be moved, a folder has to be writable.
  if ((status.st_mode & S_IWUSR) == 0) (void)chmod(from.c_str(), 0700);
  const auto at = AT_FDCWD;
  bool is_done = renameat2(at, from.c_str(), at, final_path_.c_str(), RENAME_NOREPLACE) == 0;
  if (!is_done && (errno == EINVAL || errno == ENOSYS)) {
    is_done = rename(from.c_str(), final_path_.c_str()) == 0;
  }
  if (!is_done) throw system_error("cannot make " + final_path_);
  (void)chmod(final_path_.c_str(), status.st_mode & kModeBits);
}

}  // namespace chainmail::launch
