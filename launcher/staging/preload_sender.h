// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The controller's end of files that hosts get: sends to many at once, to each a few pieces at a
// time.
//
// One thread, the io_context's.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/staging/preload_source.h"

namespace chainmail::launch {

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

}  // namespace chainmail::launch
