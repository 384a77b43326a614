// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The controller's end of files that hosts get: the files here, and who sends them to many hosts at
// once, to each a few pieces at a time.
//
// One thread, the io_context's.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/staging/preload_wire.h"

namespace chainmail::launch {

/// The files of --preload here.
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

class PreloadSender {
 public:
  struct Callbacks {
    std::function<void(std::uint32_t node, std::string body)> send;
    /// All that was to be sent to that host is there.
    std::function<void(std::uint32_t node)> on_stored;
    std::function<void(std::uint32_t node, const std::string& why)> on_failed;
  };

  PreloadSender(const PreloadSource& source, std::size_t nodes, Callbacks callbacks);

  /// `files`: indices into those of `source`. Not while others are on their way to that host.
  void send(std::uint32_t node, std::vector<std::size_t> files);
  /// A body of kPreload. Throws SystemError(EPROTO).
  void handle(std::uint32_t node, std::string_view body);
  /// The folder with the files on that host.
  const std::string& folder_on(std::uint32_t node) const { return nodes_[node].folder; }

 private:
  struct Node {
    std::vector<std::size_t> files;
    std::size_t current = 0;  // the file to go on with
    std::uint64_t sent = 0;   // of it
    std::size_t pieces_under_way = 0;
    bool is_waiting = false;
    std::string folder;
  };
  void send_more(std::uint32_t number);

  const PreloadSource& source_;
  Callbacks callbacks_;
  std::vector<Node> nodes_;
};

/// Where execvp would find `program` in the working directory `directory`. Throws UsageError.
[[nodiscard]] std::string path_of_program(const std::string& program, const std::string& directory);

}  // namespace chainmail::launch
