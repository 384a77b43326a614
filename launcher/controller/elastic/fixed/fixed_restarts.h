// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether an elastic job whose program keeps its number of ranks is started anew once more, and
// with which hosts.
//
// One thread.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/job/host.h"
#include "launcher/job/options.h"

namespace chainmail::launch {

class FixedRestarts {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// So many failures in a row end the job ...
  static constexpr int kMostFailures = 3;
  /// ... where ranks have never run for so long.
  static constexpr std::chrono::minutes kCalm{10};

  explicit FixedRestarts(const Options& options) : options_(options) {}

  /// Ranks that were started at `begun` have ended at `now`, by a failure or because hosts have
  /// changed. Empty where they are started anew; otherwise why not.
  [[nodiscard]] std::string refusal(bool is_failure, Time begun, Time now);
  /// What the next ranks are started with.
  [[nodiscard]] Options next_options() const;
  /// For people; after a failure.
  [[nodiscard]] std::string words() const;

 private:
  const Options& options_;
  std::uint32_t changes_ = 0;
  int failures_ = 0;  ///< in a row
};

/// `latest` with the hosts that its file names now; itself where that cannot be read with
/// certainty, has just been changed, or names none.
[[nodiscard]] HostSet hosts_now(HostSet latest);

/// Takes the hosts of these names out of `hosts`, where the others make an allowed size.
void leave_out(const std::vector<std::string>& names, const membership::SizeRange& sizes,
               std::vector<Host>& hosts);

}  // namespace chainmail::launch
