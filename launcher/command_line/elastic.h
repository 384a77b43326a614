// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The options of elastic jobs: their values, and what goes together. All throw UsageError. Pure but
// for the look at the program of --prepare, thread-safe.

#pragma once

#include <cstdint>
#include <string>

#include "launcher/job/options.h"

namespace chainmail::launch {

/// "2:8", "2:", ":8", "2:8:2".
void apply_elastic(const std::string& flag, const std::string& text, ElasticOptions& elastic);

/// "1s:5m", or Horovod's "1 300": the shortest wait of a host that has failed, and the longest.
void apply_cooldown(const std::string& flag, const std::string& text, ElasticOptions& elastic);

/// Refuses what an elastic job cannot have, and fills in what follows from the rest.
void complete_elastic(Options& options);

}  // namespace chainmail::launch
