// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What hosts print while they are prepared, in one file for each. A thread of its own writes them:
// a file system that hangs must not stop the heartbeats. What has been written is told, so that no
// more than a window of each host is on the way.
//
// Thread-safe.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace chainmail::launch {

class HostFiles {
 public:
  struct Written {
    std::uint32_t node = 0;
    std::uint8_t stream = 1;
    std::uint32_t bytes = 0;
  };

  /// FOLDER/prepare.HOST.txt for each of `hosts`, by node, and the folders above them; only their
  /// owner may read them. `goes_on`: behind what they hold. `on_written`: called by the writing
  /// thread when take_written() has something new, once until it is called.
  HostFiles(std::string folder, std::vector<std::string> hosts, bool goes_on,
            std::function<void()> on_written);
  /// As finish().
  ~HostFiles();
  HostFiles(const HostFiles&) = delete;
  HostFiles& operator=(const HostFiles&) = delete;

  void write(std::uint32_t node, std::uint8_t stream, std::string text);
  /// What has been written, or is lost, since the last call.
  [[nodiscard]] std::vector<Written> take_written();
  /// Nothing more is written; files are stored and closed, while the caller goes on.
  void end();
  /// Waits for that. Why something was lost; empty when nothing was.
  std::string finish();

 private:
  struct Piece {
    std::uint32_t node;
    std::uint8_t stream;
    std::string text;
  };

  void run();
  void open_files();
  void put(const Piece& piece);
  void lose(const std::string& why);
  [[nodiscard]] std::string path_of(std::size_t node) const;

  const std::string folder_;
  const std::vector<std::string> hosts_;
  const bool goes_on_;
  std::function<void()> on_written_;
  std::vector<internal::UniqueFd> files_;  // the thread's own
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  std::map<std::pair<std::uint32_t, std::uint8_t>, std::uint32_t> written_;
  bool is_ending_ = false;
  std::string loss_;
  std::thread thread_;
};

}  // namespace chainmail::launch
