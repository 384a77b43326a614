// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Copies of a job's output: what goes to standard output and standard error also goes to files that
// somebody has opened, and the launcher's own lines to a log. Each file is a place of its own, with
// whole lines as far as the writers have them; one that takes nothing more (a full disk) is said
// once and does not concern the others.
//
// One thread, the one that writes.

#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "launcher/job/options.h"

namespace chainmail::launch {

class OutputCopier {
 public:
  /// `tell_loss`: "cannot write PATH: No space left on device", once for each file.
  OutputCopier(const OutputCopies& copies, std::function<void(const std::string& why)> tell_loss);

  /// A piece of what `rank` (-1: the launcher) writes to `stream` (1 or 2), in an order in which no
  /// line of one stream is torn unless it has to be. `prefix`: of its lines.
  void write(std::int64_t rank, int stream, const std::string& prefix, const std::string& text);
  /// A whole line of the launcher's.
  void log(const std::string& line);
  /// Has the file systems store what was written.
  void finish();

 private:
  struct Copy {
    int fd = -1;
    const char* name = "";
    std::optional<std::int64_t> open_rank = {};  ///< whose line is unfinished
    bool has_returned = false;                   ///< that line, to its begin
    bool has_failed = false;
  };

  void put(Copy& copy, const std::string& text);
  void report(Copy& copy, int error);

  std::array<Copy, 2> streams_;
  Copy log_;
  std::function<void(const std::string& why)> tell_loss_;
};

}  // namespace chainmail::launch
