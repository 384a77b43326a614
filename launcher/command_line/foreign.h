// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Options of mpirun, Hydra's mpiexec, horovodrun, torchrun, deepspeed and srun that this launcher
// does not have, and what to say here instead. Pure, thread-safe.

#pragma once

#include <optional>
#include <span>
#include <string>

namespace chainmail::launch {

/// A sentence that begins with the option as written. `name` as FlagWords::name() gives it;
/// `arguments` begins with the option.
[[nodiscard]] std::optional<std::string> foreign_option(const std::string& name,
                                                        std::span<const std::string> arguments);

}  // namespace chainmail::launch
