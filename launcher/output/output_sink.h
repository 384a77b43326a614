// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Writes the ranks' output to the launcher's own stdout and stderr and, on request, to one file
// per rank and stream. A thread of its own does the writing, because a terminal or a pipe that
// nobody reads must not stop the heartbeats.
//
// Thread-safe.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"

namespace chainmail::launch {

struct OutputOptions {
  bool tag = false;       ///< begin every line with "[host/rank] "
  std::string directory;  ///< empty: no files
  std::vector<std::string> host_of_rank;
};

class OutputSink {
 public:
  /// Makes DIR/rank.<r>/{stdout,stderr}. Throws SystemError that names the path.
  explicit OutputSink(OutputOptions options);
  /// As finish().
  ~OutputSink();
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;

  /// Whole lines of one stream (1 stdout, 2 stderr); a piece without a line end is completed by
  /// the next one of the same stream.
  void write(std::uint32_t rank, int stream, std::string text);
  /// A line of the launcher itself, to stderr.
  void say(const std::string& line);
  /// More is waiting than should; ask the agents to pause.
  [[nodiscard]] bool is_full() const;
  /// Writes what is queued, however long its reader takes, then ends; nothing may be written
  /// afterwards. False when a target (a full disk) has not taken all that it should.
  bool finish();
  /// The reader of stdout or stderr has gone.
  [[nodiscard]] bool is_broken() const;

 private:
  struct Piece {
    std::int64_t rank;  // -1: the launcher
    int stream;
    std::string text;
  };
  struct RankFiles {
    internal::UniqueFd streams[2];
    std::string paths[2];
  };
  struct Line {
    bool is_open = false;
    std::int64_t rank = -1;
  };

  void open_files();
  void push(Piece piece);
  void run();
  void show(const Piece& piece);
  std::string tagged(const Piece& piece, bool continues_line) const;
  void put(int fd, const std::string& name, const std::string& text);
  void report_loss(int fd, const std::string& name, int error);

  OutputOptions options_;
  std::vector<RankFiles> files_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  std::size_t queued_bytes_ = 0;
  bool broken_ = false;
  bool ending_ = false;
  bool lost_output_ = false;
  // Only the writing thread uses these: whose unfinished line is on stdout and on stderr, and what
  // could not be written to.
  Line lines_[2];
  std::set<int> failed_fds_;
  std::thread thread_;
};

}  // namespace chainmail::launch
