// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/store/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chainmail/checkpoint_error.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/log.h"

namespace chainmail {

CheckpointError::CheckpointError(const std::string& message)
    : Error(ErrorCode::kCheckpoint, message) {}
CheckpointError::~CheckpointError() = default;

namespace internal {

namespace {

// A write of 2 GiB or more is cut short by Linux anyway.
constexpr std::size_t kChunkBytes = std::size_t{8} << 20;

class PosixFileSystem final : public FileSystem {
 public:
  UniqueFd create(const std::string& path) override {
    UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
    if (!file.is_open()) throw system_error("cannot create " + path);
    return file;
  }

  void write(const UniqueFd& file, std::uint64_t offset, std::span<const std::byte> bytes,
             const std::string& path) override {
    while (!bytes.empty()) {
      const ssize_t written =
          ::pwrite(file.get(), bytes.data(), std::min(bytes.size(), kChunkBytes),
                   static_cast<off_t>(offset));
      if (written < 0 && errno != EINTR) throw system_error("cannot write " + path);
      const auto count = static_cast<std::size_t>(std::max<ssize_t>(written, 0));
      bytes = bytes.subspan(count);
      offset += count;
      // The device begins while the rest is copied; only a hint, sync() says whether it worked.
      (void)::sync_file_range(file.get(), 0, 0, SYNC_FILE_RANGE_WRITE);
    }
  }

  void sync(const UniqueFd& file, const std::string& path) override {
    if (::fsync(file.get()) != 0) throw system_error("cannot flush " + path + " to its device");
  }

  void close(UniqueFd file, const std::string& path) override {
    // NFS and quotas report here what did not fit.
    if (::close(file.release()) != 0 && errno != EINTR) throw system_error("cannot close " + path);
  }

  void rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) {
      throw system_error("cannot rename " + from + " to " + to);
    }
  }

  void sync_folder(const std::string& path) override {
    const UniqueFd folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!folder.is_open()) throw system_error("cannot open folder " + path);
    // Some network file systems have no such call; their servers keep names safe by themselves.
    if (::fsync(folder.get()) != 0 && errno != EINVAL) {
      throw system_error("cannot flush folder " + path + " to its device");
    }
  }

  void make_folder(const std::string& path) override {
    if (::mkdir(path.c_str(), 0777) != 0) {
      const SystemError failure = system_error("cannot make folder " + path);
      std::error_code error;
      if (failure.native_code() != EEXIST || !std::filesystem::is_directory(path, error)) {
        throw failure;
      }
    }
  }

  void remove(const std::string& path) override {
    if (::remove(path.c_str()) != 0 && errno != ENOENT) throw system_error("cannot remove " + path);
  }
};

std::string read_all(const InputFile& file) {
  std::string bytes(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace

FileSystem::~FileSystem() = default;

std::shared_ptr<FileSystem> posix_file_system() { return std::make_shared<PosixFileSystem>(); }

void make_folders(FileSystem& files, const std::string& path) {
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  for (std::filesystem::path folder = path;
       !folder.empty() && !std::filesystem::is_directory(folder, error);
       folder = folder.parent_path()) {
    missing.push_back(folder);
  }
  for (; !missing.empty(); missing.pop_back()) {
    const std::filesystem::path parent = missing.back().parent_path();
    files.make_folder(missing.back().string());
    try {
      files.sync_folder(parent.empty() ? "." : parent.string());
    } catch (const SystemError& failure) {
      // One may write into a folder that one may not read, and only a reader can flush it.
      if (failure.native_code() != EACCES) throw;
      log_line(LogLevel::kWarning, missing.back().string() +
                                       " was made, but a crash of the machine may lose it with " +
                                       "all checkpoints in it: " + failure.what());
    }
  }
}

InputFile::InputFile(std::string path) : path_(std::move(path)) {
  // A pipe put there must not make the open wait.
  file_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat status {};
  if (!file_.is_open() || ::fstat(file_.get(), &status) != 0) {
    throw CheckpointError(system_error(path_ + ": cannot be opened").what());
  }
  if (!S_ISREG(status.st_mode)) throw CheckpointError(path_ + ": is no regular file");
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::expect_size(std::uint64_t bytes) const {
  if (size_ == bytes) return;
  throw CheckpointError(path_ + ": has " + std::to_string(size_) + " bytes instead of " +
                        std::to_string(bytes));
}

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file_.get(), bytes.data(), std::min(bytes.size(), kChunkBytes),
                                static_cast<off_t>(offset));
    if (got < 0 && errno != EINTR) {
      throw CheckpointError(system_error(path_ + ": cannot be read").what());
    }
    if (got == 0) throw CheckpointError(path_ + ": became shorter while it was read");
    const auto count = static_cast<std::size_t>(std::max<ssize_t>(got, 0));
    bytes = bytes.subspan(count);
    offset += count;
  }
}

std::string read_whole_file(const std::string& path, std::uint64_t expected_bytes) {
  const InputFile file(path);
  file.expect_size(expected_bytes);
  return read_all(file);
}

std::string read_small_file(const std::string& path, std::uint64_t limit_bytes) {
  const InputFile file(path);
  if (file.size() <= limit_bytes) return read_all(file);
  throw CheckpointError(path + ": has " + std::to_string(file.size()) + " bytes, at most " +
                        std::to_string(limit_bytes) + " are expected");
}

}  // namespace internal
}  // namespace chainmail
