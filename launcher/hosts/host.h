// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What a hostfile or a host list says about one host. A value.

#pragma once

#include <optional>
#include <string>
#include <vector>

namespace chainmail::launch {

struct Host {
  std::string name;  ///< as written, never shortened and never resolved
  int slots = 1;
  bool has_slots = false;  ///< a count was written, or the host named more than once
  std::optional<int> max_slots;
  std::string user;  ///< empty: whatever the remote shell's configuration says
  std::optional<int> port;
};

struct HostSet {
  std::string source;  ///< for people: "hostfile hosts", "host list n1:2,n2:2"
  std::vector<Host> hosts;
};

}  // namespace chainmail::launch
