// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What an elastic job writes down about its hosts, beside the hosts file F: F_log for programs, a
// line of base/membership/records.h for each change, for the life of the file; F.log for people,
// who see the same on stderr.
//
// One thread; files are written by threads of their own.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/membership/records.h"
#include "base/unique_fd.h"
#include "launcher/output/line_writer.h"

namespace chainmail::launch {

/// What F_log holds already.
struct PastLog {
  std::uint64_t next_sequence = 0;
  membership::Generation generation = 0;  ///< of the last line
  std::vector<std::string> members;  ///< addresses of those that it ends with, the oldest first
  std::size_t whole_bytes = 0;       ///< what follows is a line that was not written to its end
};
/// Lines that are none of F_log's are passed over.
[[nodiscard]] PastLog replay_log(std::string_view text);

/// The line for people; empty for what they read elsewhere.
[[nodiscard]] std::string words_of(const membership::LogRecord& record);

/// Where there is no log, or nothing in it.
[[nodiscard]] std::string why_not_resumed(const std::string& hosts_file);

class WorldLog {
 public:
  using Say = std::function<void(std::string line)>;
  enum class Start {
    kNew,
    kResume,  ///< --resume: an earlier job must have written into them
    kGoesOn,  ///< this job has written them before
  };

  /// `hosts_file` may be empty: nothing is written then. A folder that cannot be written into is
  /// said, and the job goes on without the files. Throws UsageError for kResume where there is
  /// nothing to go on with, and makes no file then.
  WorldLog(const std::string& hosts_file, Start start, Say say);

  [[nodiscard]] const PastLog& past() const noexcept { return past_; }
  void record(const membership::LogRecord& record);
  /// A line for people, with the local time.
  void note(const std::string& words);
  /// Writes what is queued. Why lines were lost; empty when none was.
  std::string finish();

 private:
  void read(const std::string& path);

  Say say_;
  PastLog past_;
  std::unique_ptr<LineWriter> for_programs_;
  std::unique_ptr<LineWriter> for_people_;
};

}  // namespace chainmail::launch
