// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The environment as the job layer reads it, and the variables that say where a process is in its
// job. Logging (base/log.cc), data sets and reports read their own; docs/env.md explains all and a
// lint test compares it with the code.
//
// Thread-safe as long as nobody calls setenv meanwhile.

#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace chainmail::internal {

/// Looks a variable up; tests pass recorded environments. Unset and empty are the same.
using Environment = std::function<std::optional<std::string>(std::string_view name)>;

/// The environment of this process.
[[nodiscard]] Environment process_environment();

struct EnvVariable {
  std::string_view name;
  std::string_view set_by;  ///< "user", "launcher", "torchrun", "mpirun", "srun", "sshd"
};

/// The variables that joining a job reads.
[[nodiscard]] std::span<const EnvVariable> known_variables() noexcept;

/// An integer variable within [low, high]; nothing when unset. Throws InvalidArgument that names
/// the variable and its value.
[[nodiscard]] std::optional<long long> read_integer(const Environment& environment,
                                                    std::string_view name, long long low,
                                                    long long high);

}  // namespace chainmail::internal
