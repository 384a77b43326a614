// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The agent's end of --preload: a folder for the job on this host (0700), into which the files are
// written as they come, checked by size and checksum. It is named after the agent's marker, so that
// whoever outlives the agent finds it.
//
// One thread.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/unique_fd.h"
#include "launcher/staging/preload_wire.h"

namespace chainmail::launch {

class PreloadStore {
 public:
  using Send = std::function<void(std::string body)>;

  PreloadStore(std::string marker, Send send);
  /// Removes the folder.
  ~PreloadStore();
  PreloadStore(const PreloadStore&) = delete;
  PreloadStore& operator=(const PreloadStore&) = delete;

  /// A body of kPreload. Throws SystemError(EPROTO) for what the controller would not say; what
  /// goes wrong on this host is told to the controller.
  void handle(std::string_view body);
  /// Empty until all that was announced is there.
  const std::string& folder() const noexcept { return folder_; }

 private:
  void begin(std::vector<PreloadedFile> files);
  void take(std::string_view piece);
  void open_next();
  void finish_file();

  const std::string marker_;
  Send send_;
  std::string path_;
  std::string folder_;
  std::vector<PreloadedFile> files_;
  std::size_t current_ = 0;
  std::uint64_t written_ = 0;
  internal::StreamHash hash_;
  internal::UniqueFd fd_;
  bool has_failed_ = false;
};

}  // namespace chainmail::launch
