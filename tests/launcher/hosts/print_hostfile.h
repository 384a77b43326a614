// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Hosts as a hostfile that parse_hostfile reads as the same hosts, for comparisons.

#pragma once

#include <string>
#include <vector>

#include "launcher/job/host.h"

namespace chainmail::launch {

inline std::string print_hostfile(const std::vector<Host>& hosts) {
  std::string out;
  for (const Host& host : hosts) {
    const bool is_address = host.name.find(':') != std::string::npos;
    out += is_address ? "[" + host.name + "]" : host.name;
    if (host.all_cores) {
      out += ":*";
    } else if (host.has_slots) {
      out += " slots=" + std::to_string(host.slots);
    }
    if (host.max_slots) out += " max_slots=" + std::to_string(*host.max_slots);
    if (!host.user.empty()) out += " user=" + host.user;
    if (host.port) out += " port=" + std::to_string(*host.port);
    out += "\n";
  }
  return out;
}

}  // namespace chainmail::launch
