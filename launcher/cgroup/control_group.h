// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A control group (v2) for the ranks of one agent and all that they start, in whatever session: the
// kernel ends it as one. Only where this process's own group is ours to divide; nothing depends on
// it.
//
// One thread.

#pragma once

#include <string>

#include "base/unique_fd.h"

namespace chainmail::launch {

class ControlGroup {
 public:
  ControlGroup() = default;  ///< none
  /// Below the group of this process, where it is the user's, or delegated to him, and hands no
  /// controllers on; else none. Named after this process, see owner_tag.h.
  [[nodiscard]] static ControlGroup make_below_own();

  [[nodiscard]] bool exists() const noexcept { return !path_.empty(); }
  /// Its folder (O_PATH), for fork_into_group(); -1: none.
  [[nodiscard]] int folder() const noexcept { return folder_.get(); }
  /// SIGKILL to all processes in it.
  void kill_all() const noexcept;
  /// Once it is empty, with the groups that its processes made below; waits for that for some 100
  /// ms.
  void remove() const noexcept;

 private:
  std::string path_;
  internal::UniqueFd folder_;
};

/// Ends and removes groups below this process's own whose owner is gone, and removes old empty ones
/// whose owner cannot be seen from here.
void end_stale_groups() noexcept;

}  // namespace chainmail::launch
