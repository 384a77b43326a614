// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The end of a thread whose owner may be destroyed in that very thread.

#pragma once

#include <thread>

namespace chainmail::internal {

/// Waits until `thread` has ended; lets it go when it is the caller's own, whose work has dropped
/// the last handle to what owned it, or none.
inline void join_or_let_go(std::thread thread) {
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

}  // namespace chainmail::internal
