// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Why a rank did not come to run its program, in words for the user.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "launcher/controller/state/root_cause.h"

namespace chainmail::launch {

struct RankStartFailure {
  std::uint32_t rank = 0;
  std::string host;
  int error = 0;  ///< errno
  std::string
      stage;         ///< "chdir", "host", "spawn", "exec"; "late chdir", "late search", "late exec"
  std::string path;  ///< what could not be used; of "host" the whole reason
  std::string image;  ///< of the container that it is in; empty: none
};

/// Of the body of a kStartFailed frame. Throws SystemError(EPROTO).
[[nodiscard]] RankStartFailure start_failure_of(std::string_view body, std::string host,
                                                std::string image);

/// Nobody is to blame for it but the start: the result names no rank. `limit`: --start-timeout.
[[nodiscard]] Failure explain(const RankStartFailure& failure, std::chrono::milliseconds limit);

}  // namespace chainmail::launch
