// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which fragment is exchanged after which local step, and which options make sense.
//
// Pure functions.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <chainmail/optimizer.h>
#include <chainmail/train/local_steps.h>

namespace chainmail::internal {

/// Throws InvalidArgument for options.local_steps that cannot be carried out, alone or beside the
/// other options. Nothing without.
void check_local_steps(const MultiNodeOptimizerOptions& options);

/// One line, equal on ranks that can train together.
[[nodiscard]] std::string describe(const LocalSteps& local);

/// The fragment that is sent after `step` local steps: fragment k where step = k * steps /
/// fragments, modulo steps. Nothing before the first one.
[[nodiscard]] std::optional<std::size_t> fragment_after(const LocalSteps& local, std::int64_t step);

}  // namespace chainmail::internal
