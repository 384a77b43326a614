// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What somebody asks of a job that runs. A value.

#pragma once

#include <cstdint>

namespace chainmail::launch {

/// A later one means more.
enum class StopRequest : std::uint8_t {
  kNone,
  kStop,  ///< as SIGTERM does: time for ranks to finish (--grace); exit code 143
  kNow,   ///< SIGKILL to all ranks; exit code 137
};

}  // namespace chainmail::launch
