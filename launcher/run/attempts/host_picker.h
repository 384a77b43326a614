// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Which hosts of a source an attempt uses: the first `count` of those that have not been lost or
// out of reach; then those for which that is longest ago. Pure.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/job/host.h"

namespace chainmail::launch {

class HostPicker {
 public:
  explicit HostPicker(std::optional<std::uint32_t> count) : count_(count) {}

  /// It was lost, or did not answer: others are taken before it from now on.
  void set_back(const std::string& host) { behind_[host] = ++failures_; }
  /// It has answered.
  void forgive(const std::string& host) { behind_.erase(host); }

  struct Chosen {
    std::vector<Host> hosts;          ///< in the order of the source
    std::vector<std::string> spares;  ///< not used now
    std::uint32_t missing = 0;        ///< hosts that the source has too few
  };
  [[nodiscard]] Chosen from(const std::vector<Host>& source) const;

 private:
  const std::optional<std::uint32_t> count_;
  std::map<std::string, std::uint64_t> behind_;  // which failure of all was its last
  std::uint64_t failures_ = 0;
};

}  // namespace chainmail::launch
