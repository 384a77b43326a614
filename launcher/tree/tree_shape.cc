// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/tree/tree_shape.h"

namespace chainmail::launch {

std::uint32_t tree_width(std::optional<std::uint32_t> asked, std::size_t remote_hosts,
                         bool goes_on) {
  if (asked) return *asked;
  if (!goes_on || remote_hosts <= kMostDirectHosts) return 0;
  // Two levels, as long as they suffice, of as few logins each as can be: the root's width and as
  // many for each of those.
  std::uint32_t width = 1;
  while (width < kMostChildren && width * (width + std::size_t{1}) < remote_hosts) ++width;
  return width;
}

std::vector<std::optional<std::uint32_t>> parents_of(const std::vector<bool>& is_this_machine,
                                                     std::uint32_t width) {
  std::vector<std::optional<std::uint32_t>> parents(is_this_machine.size());
  if (width == 0) return parents;
  std::vector<std::uint32_t> remote;
  for (std::uint32_t node = 0; node < is_this_machine.size(); ++node) {
    if (is_this_machine[node]) continue;
    if (remote.size() >= width) parents[node] = remote[(remote.size() - width) / width];
    remote.push_back(node);
  }
  return parents;
}

}  // namespace chainmail::launch
