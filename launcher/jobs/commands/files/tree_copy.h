// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Copies of files and folders that are there as a whole or not at all. Not thread-safe.

#pragma once

#include <functional>
#include <string>
#include <vector>

namespace chainmail::launch {

/// Whether to give up, asked between pieces.
using IsInterrupted = std::function<bool()>;

/// Copies a file, or a folder with all that is in it, to a path that is not there: contents, modes
/// and times; links as links. Returns what is neither file, folder nor link, and was left out.
/// Throws SystemError; EINTR when it was interrupted. What was made by then is the caller's to
/// remove, who may do so.
[[nodiscard]] std::vector<std::string> copy_tree(const std::string& from, const std::string& to,
                                                 const IsInterrupted& is_interrupted);

/// The place where a copy is made: a folder (0700) beside its final name, removed at the end of the
/// scope.
class CopyPlace {
 public:
  /// `final_path`: what the copy will be called. Throws SystemError.
  explicit CopyPlace(std::string final_path);
  ~CopyPlace();
  CopyPlace(const CopyPlace&) = delete;
  CopyPlace& operator=(const CopyPlace&) = delete;

  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// Gives something in it its final name; a file may take the place of a file. Throws SystemError.
  void publish(const std::string& name);

 private:
  std::string final_path_;
  std::string path_;
};

}  // namespace chainmail::launch
