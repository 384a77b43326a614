// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "ops/comm/progress_tracker.h"

#include <algorithm>

namespace chainmail::ops {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kLooksWithinLimit = 8;
// A word that is shown: microseconds, then hops.
constexpr unsigned kHopBits = 8;
constexpr std::uint64_t kHopMask = (std::uint64_t{1} << kHopBits) - 1;
static_assert(ProgressTracker::kMaxHops <= kHopMask);

}  // namespace

milliseconds ProgressTracker::period(milliseconds limit, milliseconds longest) noexcept {
  return std::clamp(limit / kLooksWithinLimit, milliseconds{1}, longest);
}

void ProgressTracker::set(Clock::time_point when, unsigned hops) noexcept {
  latest_ = when;
  hops_ = hops;
  if (shown_ == nullptr) return;
  const auto since_start = std::chrono::duration_cast<microseconds>(when.time_since_epoch());
  shown_->store(static_cast<std::uint64_t>(since_start.count()) << kHopBits | hops,
                std::memory_order_relaxed);
}

void ProgressTracker::show_in(std::atomic<std::uint64_t>* place) noexcept {
  shown_ = place;
  set(latest_, hops_);
}

void ProgressTracker::learn(std::uint64_t shown, Clock::time_point now) noexcept {
  // Whatever stands there: never later than now, and no more than the clock can hold.
  const auto told = microseconds{static_cast<std::int64_t>(shown >> kHopBits)};
  const auto latest = std::chrono::floor<microseconds>(now.time_since_epoch());
  const Clock::time_point when{std::min(told, latest)};
  if (when > latest_) set(when, static_cast<unsigned>(shown & kHopMask));
}

std::optional<ProgressTracker::Report> ProgressTracker::report(
    Clock::time_point now) const noexcept {
  if (hops_ >= kMaxHops) return std::nullopt;
  const auto age = std::chrono::ceil<milliseconds>(now - latest_);
  return Report{std::max(age, milliseconds{0}), hops_ + 1};
}

void ProgressTracker::learn(const Report& report, Clock::time_point now) noexcept {
  // A number from outside: no age is negative, and none so large that the clock overflows.
  constexpr milliseconds kLongAgo = std::chrono::hours{24 * 365};
  const auto when = now - std::clamp(report.age, milliseconds{0}, kLongAgo);
  if (when > latest_ && report.hops <= kMaxHops) set(when, report.hops);
}

}  // namespace chainmail::ops
