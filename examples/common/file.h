// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Files that are whole or not there: written under another name beside their own, and renamed when
// the disk has them. torch's own writers end the program when the disk is full.
//
// Local; one writer per file.

#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include <chainmail/error.h>

/// A file that is not whole yet. Made before training, and dropped, it shows whether one could be
/// written. @throws chainmail::SystemError  names file and reason; so do the members
class PartialFile {
 public:
  explicit PartialFile(const std::filesystem::path& path)
      : path_(std::filesystem::is_symlink(path) && std::filesystem::exists(path)
                  ? std::filesystem::canonical(path)
                  : path),
        part_(path_.string() + ".part") {
    namespace fs = std::filesystem;
    if (!path_.has_filename() || fs::is_directory(path_)) fail(EISDIR);
    if (fs::exists(path_) && !fs::is_regular_file(path_)) fail(EINVAL);  // a device stays one
    descriptor_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail(errno);
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;
  ~PartialFile() {
    if (descriptor_ < 0) return;
    ::close(descriptor_);
    ::unlink(part_.c_str());
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t count = ::write(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) fail(errno);
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
  }

  /// Gives the file its name; nothing may follow.
  void keep() {
    if (::fsync(descriptor_) != 0 || std::rename(part_.c_str(), path_.c_str()) != 0) fail(errno);
    ::close(descriptor_);
    descriptor_ = -1;
  }

 private:
  [[noreturn]] void fail(int reason) const {
    throw chainmail::SystemError(
        "cannot write " + path_.string() + ": " + std::generic_category().message(reason), reason);
  }

  std::filesystem::path path_;
  std::string part_;
  int descriptor_ = -1;
};

/// Puts `bytes` under `path`.
inline void write_whole(const std::filesystem::path& path, std::string_view bytes) {
  PartialFile file(path);
  file.write(bytes);
  file.keep();
}
