// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The exit codes of the launcher that are not those of ranks. Constants.

#pragma once

namespace chainmail::launch::exit_code {

inline constexpr int kUsage = 2;
inline constexpr int kTimeLimit = 124;
inline constexpr int kLauncherError = 125;
inline constexpr int kCannotExecute = 126;
inline constexpr int kNotFound = 127;
inline constexpr int kSignalBase = 128;

}  // namespace chainmail::launch::exit_code
