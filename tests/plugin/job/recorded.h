// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Environments to read from, as recorded or made up.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "plugin/job/environment/env.h"

namespace chainmail::internal {

using Recorded = std::map<std::string, std::string, std::less<>>;

inline Environment environment_of(Recorded recorded) {
  return [recorded = std::move(recorded)](std::string_view name) -> std::optional<std::string> {
    const auto found = recorded.find(name);
    if (found == recorded.end() || found->second.empty()) return std::nullopt;
    return found->second;
  };
}

}  // namespace chainmail::internal
