// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Processes that write a generation together, each a part of its own, as the ranks of a node do
// with a sharded optimizer. One thread.

#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/unique_fd.h"

namespace chainmail::bench {

class PartWriters {
 public:
  /// Starts `count` processes with `bytes` / `count` of state each. Call it before this process has
  /// threads, or much memory.
  PartWriters(const std::string& folder, std::size_t bytes, int count);
  /// Ends them.
  ~PartWriters();
  PartWriters(const PartWriters&) = delete;
  PartWriters& operator=(const PartWriters&) = delete;

  /// Seconds that a save takes: copies, parts, manifest, its name.
  double save(std::int64_t iteration);
  /// The most by which a process has grown since it had its state.
  std::size_t grown_bytes() const noexcept { return grown_bytes_; }
  int count() const noexcept { return static_cast<int>(writers_.size()); }

 private:
  struct Writer {
    pid_t pid = 0;
    internal::UniqueFd channel;
  };

  void add(int part);
  void end() noexcept;

  std::string folder_;
  std::size_t part_bytes_;
  std::vector<Writer> writers_;
  std::size_t grown_bytes_ = 0;
};

}  // namespace chainmail::bench
