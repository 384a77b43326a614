// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Texts that the user or a scheduler names, as a whole.
//
// Any thread.

#pragma once

#include <cstddef>
#include <string>

namespace chainmail::launch {

/// More than this is no text about hosts.
inline constexpr std::size_t kMaxHostTextBytes = std::size_t{16} << 20;

/// What becomes of a named pipe: somebody may be about to write into it.
enum class Pipes { kWaitFor, kRefuse };

/// A whole file of at most `most` bytes, or what a named pipe yields; `what` names it in messages.
/// Throws UsageError.
[[nodiscard]] std::string read_host_text(const std::string& path, const std::string& what,
                                         Pipes pipes = Pipes::kWaitFor,
                                         std::size_t most = kMaxHostTextBytes);

}  // namespace chainmail::launch
