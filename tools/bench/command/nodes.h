// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// --nodes: the benchmark over "nodes" on this machine, namespaces whose links are shaped. A script
// makes them, runs the launcher over them with this program again, and takes them down.

#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace chainmail::bench {

/// --nodes where there are none.
inline constexpr int kNoNodes = -1;

struct NodesOptions {
  int nodes = 2;
  std::string rate;       ///< as tc writes it, such as "1gbit"; empty: not shaped
  std::string per_node;   ///< ranks on each node, "2", or a list for uneven ones, "2,1"
  bool tells_rsh = true;  ///< gives the program --mpi_rsh, what starts processes on other nodes
};

/// Throws InvalidArgument when `per_node` does not fit.
[[nodiscard]] std::vector<int> ranks_per_node(const NodesOptions& options);

/// Throws InvalidArgument for what is no rate in tc's notation: "1gbit", "0.5mbps", "1000000".
void check_rate(std::string_view rate);

/// The whole command: `folder` has bin and libexec, `program` and its arguments are what the ranks
/// run. Throws InvalidArgument.
[[nodiscard]] std::vector<std::string> nodes_command(const NodesOptions& options,
                                                     const std::string& folder,
                                                     const std::vector<std::string>& program);

/// Becomes that command, for this program called as `command`. Returns only by throwing.
[[noreturn]] void run_over_nodes(const NodesOptions& options, std::vector<std::string> command);

}  // namespace chainmail::bench
