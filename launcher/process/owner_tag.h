// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What is ours on a machine says in its name which process it belongs to, so that whatever a job
// that was killed as a whole has left there can be told from what is in use: by the machine's boot,
// the namespace of process numbers, the number and the time when that process started. Those three
// programs write it: the launcher, its agents, and the script that agents come by
// (remote/bootstrap.cc).
//
// Pure functions over /proc; thread-safe.

#pragma once

#include <string>
#include <string_view>

namespace chainmail::launch {

/// owner-BOOT-NAMESPACE-PID-START of this process: no dots in it, fit for a name between two of
/// them. Empty where /proc does not tell.
[[nodiscard]] std::string own_tag();

enum class Owner {
  kUnknown,  ///< no tag in the name, or a process that cannot be seen from here
  kAlive,
  kGone,
  kEarlierBoot,  ///< or, where several machines share the folder, another machine
};

/// What has become of the process that `name` has a tag of, between dots.
[[nodiscard]] Owner owner_of(std::string_view name);

}  // namespace chainmail::launch
