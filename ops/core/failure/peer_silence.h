// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which peers of a group do not answer this rank itself: what tells, after a network was cut, those
// behind the cut from those whom somebody behind it has named.
//
// Thread-safe. Whoever has connections says so, and asks before the descriptor is closed.

#pragma once

#include <chrono>
#include <mutex>
#include <set>
#include <vector>

namespace chainmail::ops {

class PeerSilence {
 public:
  /// `rank` of the job is reached through the socket `fd` until end(). It counts as
  /// silent somewhat before `limit`, since others may have seen the same cut first.
  void watch(const void* owner, int rank, int fd, std::chrono::milliseconds limit);
  void end(const void* owner, int rank);
  /// The same for all connections of `owner`.
  void end(const void* owner);
  /// `rank` has not answered for long, as its caller knows.
  void add(int rank);

  /// Ranks that do not answer now, or did not when their connections were ended; in order.
  [[nodiscard]] std::vector<int> silent() const;

  /// For how long a connection that is given up after `limit` has been silent when others may
  /// already have given it up.
  [[nodiscard]] static std::chrono::milliseconds enough(std::chrono::milliseconds limit);

 private:
  struct Line {
    const void* owner;
    int rank;
    int fd;
    std::chrono::milliseconds limit;
    [[nodiscard]] bool is_silent() const;
  };

  void end_those(const auto& is_chosen);

  mutable std::mutex mutex_;
  std::vector<Line> lines_;
  std::set<int> silent_;
};

}  // namespace chainmail::ops
