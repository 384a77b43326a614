// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/controller/elastic/shard_balance.h"

#include <algorithm>
#include <limits>

#include "base/membership/cut.h"

namespace chainmail::launch {
namespace {

// A round has a word of each rank, twice a second at most.
constexpr std::uint32_t kRounds = 4;
constexpr std::uint32_t kMostRest = 1024;
// Of what the slowest rank takes, that much has to be left over; and no less, since steps that are
// shorter than a time slice are the scheduler's.
constexpr std::uint64_t kLessByFourth = 4;
constexpr std::uint64_t kLeastGainUs = 5000;

std::uint64_t slowest_us(const std::vector<membership::ShardNumber>& cut,
                         const std::vector<std::uint32_t>& times) {
  std::uint64_t most = 0;
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    most = std::max(most, std::uint64_t{times[rank]} * (cut[rank + 1] - cut[rank]));
  }
  return most;
}

}  // namespace

std::vector<std::uint32_t> ShardBalance::on_time(const membership::World& world,
                                                 membership::MemberId member,
                                                 std::chrono::microseconds time) {
  const auto rank = world.rank_of(member);
  if (!rank) return {};
  if (generation_ != world.generation) {
    generation_ = world.generation;
    times_.assign(world.members.size(), 0);
    is_heard_.assign(world.members.size(), false);
    rounds_ = 0;
  }
  times_[*rank] = static_cast<std::uint32_t>(
      std::clamp<std::int64_t>(time.count(), 1, std::numeric_limits<std::uint32_t>::max()));
  is_heard_[*rank] = true;
  if (std::find(is_heard_.begin(), is_heard_.end(), false) != is_heard_.end()) return {};
  is_heard_.assign(world.members.size(), false);
  if (rest_ > 0) {
    --rest_;
    return {};
  }
  rounds_ = is_unbalanced(world) ? rounds_ + 1 : 0;
  if (rounds_ < kRounds) return {};
  rounds_ = 0;
  rest_ = next_rest_;
  next_rest_ = std::min(2 * next_rest_, kMostRest);
  return times_;
}

bool ShardBalance::is_unbalanced(const membership::World& world) const {
  const std::uint64_t now = slowest_us(world.cut, times_);
  const std::uint64_t then = slowest_us(membership::make_cut(world.cut.back(), times_), times_);
  return now >= then + std::max(now / kLessByFourth, kLeastGainUs);
}

}  // namespace chainmail::launch
