// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/train/local_steps/schedule.h"

#include <cmath>
#include <sstream>

#include <chainmail/error.h>

namespace chainmail::internal {

namespace {

void require_local(bool condition, const std::string& problem) {
  if (!condition) throw InvalidArgument("local_steps: " + problem);
}

void check_counts(const LocalSteps& local) {
  require_local(local.steps >= 1, ".steps is " + std::to_string(local.steps) +
                                      "; nodes need at least 1 from one exchange to the next");
  require_local(local.fragments >= 1, ".fragments is " + std::to_string(local.fragments) +
                                          "; there is at least 1, all parameters");
  require_local(local.steps % local.fragments == 0,
                ".steps = " + std::to_string(local.steps) +
                    " is no multiple of .fragments = " + std::to_string(local.fragments) +
                    ", and fragments are sent at equal distances; change one of them");
  const std::int64_t distance = local.steps / local.fragments;
  require_local(local.delay >= 0 && local.delay < distance,
                ".delay is " + std::to_string(local.delay) + "; a fragment is sent every " +
                    std::to_string(distance) +
                    " steps (.steps / .fragments) and must arrive before the next one is sent, so "
                    "it may be 0 to " +
                    std::to_string(distance - 1));
  require_local(local.start >= 0,
                ".start is " + std::to_string(local.start) + "; it counts steps, from 0");
}

}  // namespace

void check_local_steps(const MultiNodeOptimizerOptions& options) {
  if (!options.local_steps) return;
  const LocalSteps& local = *options.local_steps;
  check_counts(local);
  require_local(std::isfinite(local.outer_lr) && local.outer_lr > 0,
                ".outer_lr is " + std::to_string(local.outer_lr) + "; it must be positive");
  require_local(local.outer_momentum >= 0 && local.outer_momentum < 1,
                ".outer_momentum is " + std::to_string(local.outer_momentum) +
                    "; it must be at least 0 and less than 1");
  const double merge = local.merge.value_or(0);
  require_local(merge >= 0 && merge <= 1,
                ".merge is " + std::to_string(merge) + "; it is a part, from 0 to 1");
  require_local(!options.double_buffering,
                "with double_buffering, which hides the way of gradients between nodes: they take "
                "none here, and would be a step late for nothing. Leave .double_buffering out");
  require_local(options.shard == Sharding::kNone,
                "with .shard: what a sharded optimizer owns of a mean is that of all ranks, and "
                "between two exchanges nodes have gradients, state and parameters of their own. "
                "Use Sharding::kNone");
}

std::string describe(const LocalSteps& local) {
  std::ostringstream text;
  text.precision(17);
  text << local.steps << " steps, " << local.fragments << " fragments, delay " << local.delay
       << ", outer rate " << local.outer_lr << ", outer momentum " << local.outer_momentum
       << ", from step " << local.start;
  if (local.merge) text << ", merge " << *local.merge;
  return std::move(text).str();
}

std::optional<std::size_t> fragment_after(const LocalSteps& local, std::int64_t step) {
  const std::int64_t distance = local.steps / local.fragments;
  if (step <= 0 || step % distance != 0) return std::nullopt;
  return static_cast<std::size_t>(step / distance % local.fragments);
}

}  // namespace chainmail::internal
