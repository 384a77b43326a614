// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/ranks/stall_detector.h"

#include <algorithm>
#include <tuple>

namespace chainmail::launch {
namespace {

bool is_behind(const Progress& one, const Progress& other) {
  return std::tie(one.world, one.steps, one.operations) <
         std::tie(other.world, other.steps, other.operations);
}

std::string place_of(const Progress& progress) {
  const std::string operations = "operation " + std::to_string(progress.operations);
  const std::string world =
      progress.world == 0 ? "" : "world " + std::to_string(progress.world) + ", ";
  return world + (progress.steps == 0
                      ? operations
                      : "step " + std::to_string(progress.steps) + ", " + operations);
}

}  // namespace

void StallDetector::update(std::uint32_t rank, Progress progress, Time now) {
  Rank& of_rank = known(rank);
  if (of_rank.seen == progress) return;
  of_rank.seen = progress;
  of_rank.since = now;
}

StallDetector::Rank& StallDetector::known(std::uint32_t rank) {
  if (rank >= ranks_.size()) ranks_.resize(std::size_t{rank} + 1);
  return ranks_[rank];
}

void StallDetector::start_anew(Time now) {
  for (Rank& rank : ranks_) rank.since = now;
}

// News of ranks come at different times: the one that all wait for may have been heard of last. So
// somebody no further than this rank, heard of within the limit, excuses it; for as long again, as
// ranks need not have to do with each other.
bool StallDetector::may_wait_for_others(std::uint32_t rank, Time now,
                                        std::chrono::milliseconds limit,
                                        const Filter& counts) const {
  const Rank& waiting = ranks_[rank];
  if (now - waiting.since >= 2 * limit) return false;
  for (std::uint32_t number = 0; number < ranks_.size(); ++number) {
    if (!is_known(number, counts)) continue;
    const Rank& other = ranks_[number];
    if (now - other.since < limit && !is_behind(*waiting.seen, *other.seen)) return true;
  }
  return false;
}

bool StallDetector::is_known(std::uint32_t rank, const Filter& counts) const {
  return ranks_[rank].seen && (!counts || counts(rank));
}

std::optional<Stall> StallDetector::find(Time now, std::chrono::milliseconds limit,
                                         const Filter& counts) const {
  std::vector<std::uint32_t> still;
  std::size_t known = 0;
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    if (!is_known(rank, counts)) continue;
    ++known;
    if (now - ranks_[rank].since >= limit && !may_wait_for_others(rank, now, limit, counts)) {
      still.push_back(rank);
    }
  }
  if (still.empty()) return std::nullopt;
  const auto less = [this](std::uint32_t one, std::uint32_t other) {
    return is_behind(*ranks_[one].seen, *ranks_[other].seen);
  };
  const auto [last, first] = std::minmax_element(still.begin(), still.end(), less);
  Stall stall;
  stall.text = "no progress for " + std::to_string(limit.count() / 1000) + " s: stands at " +
               place_of(*ranks_[*last].seen);
  if (less(*last, *first)) {
    std::copy_if(still.begin(), still.end(), std::back_inserter(stall.culprits),
                 [&](std::uint32_t rank) { return !less(*last, rank); });
    stall.text += ", where others that wait are at " + place_of(*ranks_[*first].seen);
  } else if (still.size() < known) {
    stall.culprits = still;
  }
  return stall;
}

}  // namespace chainmail::launch
