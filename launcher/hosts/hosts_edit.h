// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Hosts put into and taken out of the hosts of an elastic job by command, rather than by an editor.
//
// Pure functions and values, thread-safe.

#pragma once

#include <string>
#include <vector>

#include "launcher/hosts/host_text.h"
#include "launcher/job/host.h"

namespace chainmail::launch {

struct HostsEdit {
  bool removes = false;
  std::string line;  ///< as it will stand in a hosts file; of a removal the name alone
  Host host;
};

/// A host as a line of a hosts file has it: "n3", "n3:2", "n3 slots=2", with a number of slots that
/// is known. Throws HostsError.
[[nodiscard]] HostsEdit addition_of(const std::string& line);
/// The host of that name, with all its slots. Throws HostsError.
[[nodiscard]] HostsEdit removal_of(const std::string& name);

/// The text of the hosts file `where` after `edits`: a new host stands at its end, one that is
/// there has its line replaced, all else stays as it was, comments too. Throws HostsError where a
/// host that is to go is not there, or one that is to come is there like that, and for a text that
/// parse_watched_hosts() refuses.
[[nodiscard]] std::string edited_text(std::string text, const std::vector<HostsEdit>& edits,
                                      const std::string& where);
/// The same of hosts that stand in no file.
[[nodiscard]] std::vector<Host> edited_hosts(std::vector<Host> hosts,
                                             const std::vector<HostsEdit>& edits,
                                             const std::string& where);

}  // namespace chainmail::launch
