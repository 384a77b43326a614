// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// --elastic and what goes with it, as the command line says it. Times that are not given are those
// of base/membership/world/world_options.h. Values.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "base/membership/size_range.h"

namespace chainmail::launch {

struct ElasticOptions {
  std::optional<std::uint32_t> min;  ///< --elastic MIN:MAX:MULTIPLE, --min-np
  std::optional<std::uint32_t> max;  ///< --max-np; none: as many as there are shards
  std::uint32_t multiple = 1;
  std::string prepare;             ///< --prepare, a command; empty: none
  bool prepare_only_file = false;  ///< --prepare-only-file: somebody else makes the success files
  bool resumes = false;            ///< --resume: after the end of another launcher
  bool is_fixed = false;  ///< no option: the program's ranks, as it has shown, keep their number
  std::uint32_t spares = 0;
  std::optional<std::uint32_t> max_changes;
  std::optional<std::chrono::milliseconds> discovery_interval;
  std::optional<std::chrono::milliseconds> prepare_timeout;
  std::optional<std::chrono::milliseconds> window;
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<std::chrono::milliseconds> drain_timeout;
  std::optional<std::chrono::milliseconds> cool_down;
  std::optional<std::chrono::milliseconds> cool_down_most;

  [[nodiscard]] bool is_on() const noexcept { return min || max; }
  /// Ranks are members, who may come and go while others go on.
  [[nodiscard]] bool has_members() const noexcept { return is_on() && !is_fixed; }
  [[nodiscard]] bool has_gate() const noexcept { return !prepare.empty() || prepare_only_file; }
  [[nodiscard]] membership::SizeRange sizes() const noexcept {
    return {min.value_or(1), max.value_or(1), multiple};
  }
  /// "1:4", "2:8:2".
  [[nodiscard]] std::string sizes_text() const {
    const membership::SizeRange range = sizes();
    return std::to_string(range.min) + ":" + std::to_string(range.max) +
           (range.multiple == 1 ? "" : ":" + std::to_string(range.multiple));
  }
};

}  // namespace chainmail::launch
