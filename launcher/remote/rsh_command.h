// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The command line that starts an agent, and what its failure means. Pure functions.

#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/host.h"

namespace chainmail::launch {

/// `launcher --agent <marker>` on this machine.
[[nodiscard]] std::vector<std::string> local_agent_command(const std::string& launcher_path,
                                                           const std::string& marker);

/// The same through a remote shell. `remote_shell` are the words of --rsh; "%h" in them stands
/// for the host, which otherwise follows them. For ssh (by the name of the first word) options
/// for an unattended session are added after the user's own, which therefore win. Nothing in it
/// is secret and nothing needs quoting. Throws UsageError where that cannot be had.
[[nodiscard]] std::vector<std::string> remote_agent_command(
    const std::vector<std::string>& remote_shell, const Host& host,
    const std::string& launcher_path, const std::string& marker);

/// What is known about a remote shell that ended before the agent spoke.
struct StartFailure {
  std::string host;
  std::vector<std::string> command;
  std::string launcher_path;
  std::string exit;    ///< "exited with code 255", "did not answer within 30 s"
  int exit_code = -1;  ///< -1: not by itself
  std::string error_output;
  std::string hint;  ///< a further possibility, or empty
};

/// One message: what, why, what to try. Decided by what ssh and shells print, because 255 and 127
/// are also codes of remote programs.
[[nodiscard]] std::string explain(const StartFailure& failure);

/// True for failures of ssh that another try may not see.
[[nodiscard]] bool is_worth_another_try(const std::string& error_output);

}  // namespace chainmail::launch
