// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a user may set from outside about every group of a job (docs/env.md).

#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "ops/engine/group.h"
#include "plugin/job/environment/env.h"

namespace chainmail::internal {

struct JobSettings {
  std::optional<std::chrono::milliseconds> timeout;  ///< CHAINMAIL_TIMEOUT
  std::string interface;                             ///< CHAINMAIL_INTERFACE
  bool use_shared_memory = true;                     ///< CHAINMAIL_LOCAL=shm|tcp
  ops::Tuning tuning;                                ///< the file that CHAINMAIL_TUNING names
  bool measures_tuning = false;                      ///< CHAINMAIL_TUNING=measure
  std::optional<ops::CrossTransport> cross;          ///< CHAINMAIL_CROSS=tcp|mpi
  std::optional<ops::Encryption> encryption;         ///< CHAINMAIL_ENCRYPT=encrypt|...
};

/// Throws InvalidArgument that names the variable.
[[nodiscard]] JobSettings read_settings(const Environment& environment);

/// Settings win over what the program asked for.
void apply(const JobSettings& settings, ops::GroupOptions& options);

}  // namespace chainmail::internal
