// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether the launcher itself was held up: it was stopped, or the machine was.
#pragma once

#include <chrono>

namespace chainmail::launch {

/// Of a timer that fires now and was due at `due`. What came meanwhile has not been read yet, and
/// may be what the timer waits for: read on, and wait anew. Any thread.
inline bool is_late(std::chrono::steady_clock::time_point due) {
  constexpr std::chrono::milliseconds kLate{500};
  return std::chrono::steady_clock::now() - due > kLate;
}

}  // namespace chainmail::launch
