// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What has to stand beside every measured number.

#pragma once

#include <string>

namespace chainmail::bench {

struct Machine {
  std::string host;
  int cores = 1;               ///< that this job may use
  double load = 0.0;           ///< average of the last minute
  double cache_line_ns = 0.0;  ///< round trip between two cores; 0 with one core
};

[[nodiscard]] Machine examine_machine();

}  // namespace chainmail::bench
