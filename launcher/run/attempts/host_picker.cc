// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "launcher/run/attempts/host_picker.h"

#include <algorithm>
#include <numeric>

namespace chainmail::launch {

HostPicker::Chosen HostPicker::from(const std::vector<Host>& source) const {
  const std::size_t wanted = count_.value_or(static_cast<std::uint32_t>(source.size()));
  const auto failure_of = [&](std::size_t host) {
    const auto found = behind_.find(source[host].name);
    return found == behind_.end() ? 0 : found->second;
  };
  std::vector<std::size_t> order(source.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return failure_of(a) < failure_of(b); });
  std::vector<bool> is_used(source.size(), false);
  for (std::size_t i = 0; i < std::min(wanted, order.size()); ++i) is_used[order[i]] = true;
  Chosen chosen;
  chosen.missing = static_cast<std::uint32_t>(wanted - std::min(wanted, source.size()));
  // Ranks of hosts that stay keep their places.
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (is_used[i]) {
      chosen.hosts.push_back(source[i]);
    } else {
      chosen.spares.push_back(source[i].name);
    }
  }
  return chosen;
}

}  // namespace chainmail::launch
