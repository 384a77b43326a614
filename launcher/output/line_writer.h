// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Writes lines to a file by a thread of its own: a file system that hangs must not stop the
// heartbeats. Every line is one write, so that who follows the file sees whole lines. A file that
// has grown to its limit becomes <path>.1, in place of what was that before, and a new one begins.
//
// Thread-safe.

#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <thread>

#include "base/unique_fd.h"

namespace chainmail::launch {

class LineWriter {
 public:
  /// Makes `path`, and the folders above it, anew, or goes on behind what it holds; only its owner
  /// may read it. Throws SystemError that names the path.
  explicit LineWriter(std::string path, bool goes_on = false,
                      std::size_t most_bytes = std::size_t{16} << 20);
  /// As finish().
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  void write(std::string line);
  /// Writes what is queued and ends. Why lines were lost; empty when none was.
  std::string finish();

 private:
  void open(int more_flags);
  void begin_anew();
  void run();

  const std::string path_;
  const std::size_t most_bytes_;
  internal::UniqueFd fd_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> queue_;
  std::size_t queued_bytes_ = 0;
  std::size_t file_bytes_ = 0;  // the thread's own
  bool ending_ = false;
  std::string loss_;
  std::thread thread_;
};

}  // namespace chainmail::launch
