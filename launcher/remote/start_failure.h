// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What it means that a remote shell ended, or said nothing, before the agent spoke. Pure functions.

#pragma once

#include <string>
#include <vector>

#include "launcher/job/host.h"
#include "launcher/job/host_setup.h"

namespace chainmail::launch {

struct StartFailure {
  Host host;
  std::vector<std::string> remote_shell;  ///< the words of --rsh; empty: this machine
  std::string launcher_path;
  std::string exit;    ///< "exited with code 255", "did not answer within 30 s"
  int exit_code = -1;  ///< -1: not by itself
  std::string error_output;
  std::string hint;  ///< a further possibility, or empty
  /// Whose start was begun there; null: of none.
  const Container* container = nullptr;
};

/// One message: what, why, what to try. Decided by what ssh and shells print, because 255 and 127
/// are also codes of remote programs.
[[nodiscard]] std::string explain(const StartFailure& failure);

/// How many tries in all a failure like this is worth: many where sshd refuses some of many logins
/// at once (MaxStartups), some where no name server answers, one where the next try would see the
/// same.
[[nodiscard]] int worthwhile_tries(const std::string& error_output);

/// True where the host is unknown, refuses connections or does not answer, and may do otherwise
/// once it has booted; false where it was reached, or has refused the login.
[[nodiscard]] bool is_out_of_reach(const StartFailure& failure);

}  // namespace chainmail::launch
