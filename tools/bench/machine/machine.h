// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What has to stand beside every measured number.

#pragma once

#include <string>

namespace chainmail::bench {

struct Machine {
  std::string host;
  std::string processor;
  std::string kernel;
  std::string version;  ///< of Chainmail
  std::string commit;   ///< "unknown" when built outside a repository
  std::string date;
  int cores = 1;               ///< that this job may use
  double load = 0.0;           ///< average of the last minute
  double cache_line_ns = 0.0;  ///< round trip between two cores; 0 with one core
  // By measure_rates(), in GB/s.
  double stream_gbs = 0.0;  ///< a += b in memory on all ranks' cores at once, three transfers
  double memcpy_gbs = 0.0;  ///< in memory on one core, two transfers
  double socket_gbs = 0.0;  ///< a TCP stream from rank 0 to another node, or through loopback
};

/// All but the rates.
[[nodiscard]] Machine examine_machine();

/// Lets this thread use every core that the container or batch system leaves us, whatever a
/// launcher has bound this process to.
void use_all_cores();

}  // namespace chainmail::bench
