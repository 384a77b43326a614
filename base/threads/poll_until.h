// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Waiting where nothing can wake the caller: asking again and again, with pauses.
//
// Any thread.

#pragma once

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/deadline.h"

namespace chainmail::internal {

/// Each pause is twice as long as the one before; the longest says how late an answer may be seen.
struct PollPauses {
  std::chrono::microseconds shortest{100};
  std::chrono::microseconds longest{20'000};
};

/// Until `is_there()`; false when the deadline has passed and it was not there afterwards. What
/// `is_there()` throws ends it.
template <typename IsThere>
[[nodiscard]] bool poll_until(const IsThere& is_there, const Deadline& deadline,
                              const PollPauses& pauses = {}) {
  for (auto pause = pauses.shortest;; pause = std::min(2 * pause, pauses.longest)) {
    const bool is_last = deadline.has_passed();
    if (is_there()) return true;
    if (is_last) return false;
    std::this_thread::sleep_for(std::min<std::chrono::microseconds>(pause, deadline.left()));
  }
}

}  // namespace chainmail::internal
