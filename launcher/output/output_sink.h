// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Writes the ranks' output to the launcher's own stdout and stderr and, on request, to copies of
// those and to one file per rank and stream. A thread of its own does the writing, because a
// terminal or a pipe that nobody reads must not stop the heartbeats. What has been written is told,
// so that no rank has more than its window on the way.
//
// Thread-safe.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "launcher/job/options.h"
#include "launcher/output/line_merger.h"
#include "launcher/output/targets/output_copier.h"

namespace chainmail::launch {

struct OutputOptions {
  bool tag = false;               ///< begin every line with "[host/rank] "
  bool timestamp = false;         ///< begin every line with the local date and time
  bool carriage_returns = false;  ///< on a terminal: '\r' ends a piece, too
  std::string directory;          ///< empty: no files
  bool append = false;            ///< to files that are there already
  bool is_silent = false;         ///< nothing goes to stdout and stderr
  OutputCopies copies;
  std::vector<std::string> host_of_rank;
  /// Called by the writing thread when take_written() has something new, once until it is called.
  std::function<void()> on_written;
};

/// So many bytes of a rank's stream have been written.
struct WrittenOutput {
  std::uint32_t rank = 0;
  std::uint8_t stream = 1;
  std::uint32_t bytes = 0;
};

class OutputSink {
 public:
  /// Makes DIR/rank.<r>/{stdout,stderr}. Throws SystemError that names the path.
  explicit OutputSink(OutputOptions options);
  /// As finish().
  ~OutputSink();
  OutputSink(const OutputSink&) = delete;
  OutputSink& operator=(const OutputSink&) = delete;

  /// One more rank, behind those that there are, on `host`. Files that cannot be made are said to
  /// be lost output.
  void add_rank(const std::string& host);
  /// Whole lines of one stream (1 stdout, 2 stderr); a piece without a line end is completed by
  /// the next one of the same stream.
  void write(std::uint32_t rank, int stream, std::string text);
  /// Nothing more comes from this rank; a line without an end is ended before another begins.
  void end_rank(std::uint32_t rank);
  /// A line of the launcher itself, to stderr.
  void say(const std::string& line);
  /// What has been written since the last call.
  [[nodiscard]] std::vector<WrittenOutput> take_written();
  /// Writes what is queued, however long its reader takes, has copies stored, then ends; nothing
  /// may be written afterwards. False when a target (a full disk) has not taken all that it should.
  /// Copies do not count: the job is what it is without them.
  bool finish();
  /// After finish(): what was lost first, of copies as well, and why; empty when nothing was.
  [[nodiscard]] std::string loss() const;
  /// The reader of stdout or stderr has gone.
  [[nodiscard]] bool is_broken() const;

 private:
  struct Piece {
    Writer writer;
    std::string text;
    bool ends_rank = false;
    bool begins_rank = false;  ///< one more, on host `text`
  };

  struct RankFiles {
    internal::UniqueFd streams[2];
    std::string paths[2];
  };

  void remove_older_files() const;
  [[nodiscard]] RankFiles open_files(std::size_t rank) const;
  void push(Piece piece);
  void run();
  void wait_for_piece(std::unique_lock<std::mutex>& lock);
  LineMerger make_merger();
  LineMerger& merger_of(int stream);
  void handle(Piece piece);
  void let_open_lines_end();
  void show(const LineMerger::Shown& shown);
  std::string prefix_of(const Writer& writer) const;
  void put(int fd, const std::string& name, const std::string& text);
  void finish_targets();
  void report_written(const Writer& writer, std::size_t bytes);
  void begin_rank(std::string host);
  void end_files(std::int64_t rank);
  void report_loss(int fd, const std::string& name, int error);
  void tell_loss(const std::string& why, bool is_of_copy = false);

  OutputOptions options_;         // its hosts grow by the writing thread
  std::vector<RankFiles> files_;  // as they do
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> queue_;
  std::map<std::pair<std::uint32_t, std::uint8_t>, std::uint32_t> written_;
  bool broken_ = false;
  bool ending_ = false;
  bool lost_output_ = false;
  std::string first_loss_;
  // Only the writing thread uses these. One merger where stdout and stderr are the same place.
  bool is_one_place_ = false;
  LineMerger mergers_[2];
  OutputCopier copier_;
  std::set<int> failed_fds_;
  std::thread thread_;
};

}  // namespace chainmail::launch
