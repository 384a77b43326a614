// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What all members of an elastic job must have alike from the beginning on: a line for each thing,
// such as "'net/0.weight' is float32 [20, 6]". The launcher compares hashes of it (the fingerprint
// of membership::ProgramReady) and refuses whoever has another one.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace chainmail::internal {

class LauncherClient;

/// "here: LINES; in the job: LINES", at most three of each; empty for equal ones.
[[nodiscard]] std::string difference_of(const std::string& here, const std::string& in_the_job);

/// `description` itself; of a longer one its first lines, some `most_bytes` together, and a line
/// with the number and a digest of the others.
[[nodiscard]] std::string told_part(const std::string& description, std::size_t most_bytes);

/// The hash of `own`. Logs an error with the difference of the told parts (256 KiB) where the first
/// member of the job to call this has given another description.
[[nodiscard]] std::uint64_t compare_description(LauncherClient& launcher, const std::string& own);

}  // namespace chainmail::internal
