// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Reads hostfiles and host lists: the forms of Open MPI, MPICH, Horovod and DeepSpeed
// that cannot be mistaken for each other. What could mean two things is refused, never guessed.
//
// Pure functions, thread-safe.

#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/hosts/host_text.h"
#include "launcher/job/host.h"

namespace chainmail::launch {

struct HostfileRules {
  bool refuses_repeats = false;  ///< --hostfile-strict: a host named twice is an error
  bool needs_numbers = false;    ///< --elastic: slots that only the host knows (":*") are an error
};

/// One host per line: `[user@]name[:n|:*] [slots=n] [max_slots=n] [port=n] [user=name]`, comments
/// by `#`, `//` and `/* */`, LF or CRLF. Hosts named again add their slots; order of first
/// appearance. Without a number a line gives one slot. `where` names the file in messages. Throws
/// HostfileError.
[[nodiscard]] std::vector<Host> parse_hostfile(std::string_view text, const std::string& where,
                                               const HostfileRules& rules = {});

/// What HostfileRules::needs_numbers says of such a host.
[[nodiscard]] std::string why_it_needs_a_number(const Host& host);

/// `h1:4,h2:4`, `h1,h1,h2`, `h1:*`, `user@h1`, `[fd00::5]:2`.
[[nodiscard]] std::vector<Host> parse_host_list(std::string_view text, const std::string& where);

}  // namespace chainmail::launch
