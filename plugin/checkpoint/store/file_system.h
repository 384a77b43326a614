// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The calls that change what is on disk. A seam: tests let the n-th call fail, or end the process
// there.
//
// Every call throws SystemError that names what it was about. Thread-safe.

#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/unique_fd.h"

namespace chainmail::internal {

class FileSystem {
 public:
  virtual ~FileSystem();
  /// A file that must not be there yet.
  virtual UniqueFd create(const std::string& path) = 0;
  /// At `offset` of the file; parts may come in any order.
  virtual void write(const UniqueFd& file, std::uint64_t offset, std::span<const std::byte> bytes,
                     const std::string& path) = 0;
  /// Returns when the contents are on the device. After a failure the contents are lost: there is
  /// no second try on the same file.
  virtual void sync(const UniqueFd& file, const std::string& path) = 0;
  virtual void close(UniqueFd file, const std::string& path) = 0;
  /// `to` must not be there yet, or be a file.
  virtual void rename(const std::string& from, const std::string& to) = 0;
  /// Makes names in the folder durable.
  virtual void sync_folder(const std::string& path) = 0;
  /// One, in a folder that is there; fine when it is there itself.
  virtual void make_folder(const std::string& path) = 0;
  /// A file or an empty folder; fine when it is gone.
  virtual void remove(const std::string& path) = 0;
};

[[nodiscard]] std::shared_ptr<FileSystem> posix_file_system();

/// A folder with its parents; fine when it is there. Returns when the names of all that it made are
/// on the device: what is written into a folder whose own name gets lost is lost with it.
void make_folders(FileSystem& files, const std::string& path);

/// A regular file that is read. Links are not followed. Errors are CheckpointError that names it.
class InputFile {
 public:
  explicit InputFile(std::string path);
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }
  /// Throws, before anything is read, when its size is another one.
  void expect_size(std::uint64_t bytes) const;
  /// Fills `bytes` with what it has from `offset` on.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::string path_;
  UniqueFd file_;
  std::uint64_t size_ = 0;
};

/// A whole regular file. Links are not followed.
/// @param expected_bytes  what it has to have; otherwise CheckpointError before anything is read
[[nodiscard]] std::string read_whole_file(const std::string& path, std::uint64_t expected_bytes);

/// The same for a file of unknown size; at most `limit_bytes`.
[[nodiscard]] std::string read_small_file(const std::string& path, std::uint64_t limit_bytes);

}  // namespace chainmail::internal
