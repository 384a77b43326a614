// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The lock of a job: held by its supervisor, and by what that forks, for as long as one of them
// lives. A lock of an open file description (fcntl), which network file systems have as well.
// Thread-safe.

#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/unique_fd.h"

namespace chainmail::launch {

inline constexpr char kLockFile[] = "lock";

/// Makes it in a folder that is open, and takes it; closed on exec. Throws SystemError with `path`
/// where there is one already, or the file system has no locks.
[[nodiscard]] internal::UniqueFd take_job_lock(int folder, const std::string& path);

/// A lock that launchers of one state folder take in turn: `name`, a file of `root`, held as long
/// as the descriptor is. Nothing where the folder is not there, or when `is_over`, asked five times
/// a second, says so.
[[nodiscard]] internal::UniqueFd take_turn(const std::string& root, const char* name,
                                           const std::function<bool()>& is_over);

enum class LockState {
  kHeld,
  kFree,
  kUnknown,  ///< there is no such file, or the file system does not tell
};
/// Asks without taking it, and without the right to write. `is_elsewhere`: its supervisor is on
/// another machine, whose locks are not seen by way of every mount.
[[nodiscard]] LockState lock_state_of(const std::string& folder, bool is_elsewhere);

/// Whether locks on this device stay unknown to other machines, going by the lines of
/// /proc/self/mountinfo. Pure.
[[nodiscard]] bool has_local_locks(std::string_view mounts, unsigned int major_number,
                                   unsigned int minor_number);

}  // namespace chainmail::launch
