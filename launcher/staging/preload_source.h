// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The files of --preload here. One thread.

#pragma once

#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/staging/preload_wire.h"

namespace chainmail::launch {

class PreloadSource {
 public:
  /// Opens `path` and reads it once, for its checksum. A file that is there already is not added
  /// again. Gives its index. Throws UsageError that begins with `option`: no regular file, cannot
  /// be read, another file of the same name.
  std::size_t add(const std::string& option, const std::string& path, const std::string& name,
                  bool is_program);

  /// A program of ours, without what the kernel does not need to run it.
  std::size_t add_image(const std::string& path, const std::string& name);

  const std::vector<PreloadedFile>& files() const noexcept { return files_; }
  /// `bytes` from `offset` on; the file is never shorter, but zeros may stand for what was cut off
  /// meanwhile, which the checksum shows.
  [[nodiscard]] std::string read(std::size_t file, std::uint64_t offset, std::size_t bytes) const;

 private:
  struct Opened {
    std::string path;  // the real one
    internal::UniqueFd fd;
  };
  void compute_checksum(std::size_t index);

  std::vector<PreloadedFile> files_;
  std::vector<Opened> opened_;
};

/// Where execvp would find `program` in the working directory `directory`. Throws UsageError.
[[nodiscard]] std::string path_of_program(const std::string& program, const std::string& directory);

}  // namespace chainmail::launch
