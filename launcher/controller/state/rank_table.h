// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What the launcher knows of each rank, and how ranks are named to the user. Decides nothing.
//
// One thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/job/job_protocol.h"
#include "launcher/controller/state/event_log.h"
#include "launcher/output/line_splitter.h"
#include "launcher/placement/placement.h"

namespace chainmail::launch {

class RankTable {
 public:
  struct Rank {
    std::uint32_t node = 0;
    bool has_started = false;  ///< its program
    bool is_gone = false;
    internal::FrameReader requests;
    LastLines last_error_lines;
    std::optional<std::chrono::steady_clock::time_point> stopped_since;
  };

  /// `noun`: what ranks are called, "member" where they are numbered as an elastic job's are.
  explicit RankTable(const Placement& placement, std::string noun = "rank");
  /// One more node, and one more rank of a node; their numbers.
  std::uint32_t add_node(std::string host);
  std::uint32_t add_rank(std::uint32_t node);

  std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(ranks_.size()); }
  Rank& operator[](std::uint32_t rank) { return ranks_[rank]; }
  const Rank& operator[](std::uint32_t rank) const { return ranks_[rank]; }
  auto begin() const noexcept { return ranks_.begin(); }
  auto end() const noexcept { return ranks_.end(); }

  /// `rank` as the agent of `node` has written it: throws SystemError(EPROTO) unless it runs there.
  [[nodiscard]] std::uint32_t checked(std::uint32_t node, std::uint32_t rank) const;
  /// The node of each rank.
  [[nodiscard]] std::vector<std::uint32_t> nodes() const;
  const std::string& host_of(std::uint32_t rank) const { return hosts_[ranks_[rank].node]; }
  /// For an event that concerns this rank.
  [[nodiscard]] EventLog::Members about(std::uint32_t rank) const;
  /// "rank 3 on host n2".
  [[nodiscard]] std::string name_of(std::uint32_t rank) const;
  /// "rank 3 on host n2", "ranks 1 on host n1, 3 on host n2", "all ranks" for none; 8 at most.
  [[nodiscard]] std::string names_of(const std::vector<std::uint32_t>& ranks) const;
  /// "; rank 3 on host n2 ended before, with code 0"; nothing while all run.
  [[nodiscard]] std::string gone_text() const;

 private:
  std::string noun_;
  std::deque<Rank> ranks_;
  std::deque<std::string> hosts_;  // by node
};

}  // namespace chainmail::launch
