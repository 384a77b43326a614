// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// --include and --exclude, in DeepSpeed's form: "n1@n2:0,2" are all slots of n1 and two of n2.
//
// Pure functions, thread-safe.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/job/host.h"

namespace chainmail::launch {

struct HostChoice {
  std::string name;        ///< a host of the job, or its first label
  std::vector<int> slots;  ///< empty: the whole host; ascending, each once
};

/// `n1@n2:0,2@[fd00::5]:0-3`. `where` names the option in messages. Throws HostfileError.
[[nodiscard]] std::vector<HostChoice> parse_host_pickers(std::string_view text,
                                                         const std::string& where);

/// Only the chosen hosts and slots, in the order of `hosts`. Throws UsageError for a host or a slot
/// that is not there.
[[nodiscard]] std::vector<Host> include_hosts(std::vector<Host> hosts, std::string_view text);
/// All but the chosen ones. Throws UsageError when nothing is left, too.
[[nodiscard]] std::vector<Host> exclude_hosts(std::vector<Host> hosts, std::string_view text);

}  // namespace chainmail::launch
