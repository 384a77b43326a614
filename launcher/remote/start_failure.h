// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What it means that a remote shell ended, or said nothing, before the agent spoke. Pure functions.

#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/host.h"

namespace chainmail::launch {

struct StartFailure {
  Host host;
  std::vector<std::string> remote_shell;  ///< the words of --rsh; empty: this machine
  std::string launcher_path;
  std::string exit;    ///< "exited with code 255", "did not answer within 30 s"
  int exit_code = -1;  ///< -1: not by itself
  std::string error_output;
  std::string hint;  ///< a further possibility, or empty
};

/// One message: what, why, what to try. Decided by what ssh and shells print, because 255 and 127
/// are also codes of remote programs.
[[nodiscard]] std::string explain(const StartFailure& failure);

/// True for failures that another try may not see: sshd that refuses some of many logins at once
/// (MaxStartups), a name service that does not know a new machine yet.
[[nodiscard]] bool is_worth_another_try(const std::string& error_output);

}  // namespace chainmail::launch
