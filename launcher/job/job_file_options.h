// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// --job and what goes with it, as the command line says it. Values.

#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace chainmail::launch {

struct JobFileOptions {
  std::string file;                           ///< --job; empty: there is none
  std::optional<std::string> name;            ///< --name
  std::vector<std::string> sets;              ///< --set KEY=VALUE
  std::map<std::string, std::string> mounts;  ///< --mount NAME=DIR
  std::vector<std::string> secrets;           ///< --secret NAME, NAME=@FILE
  bool is_detached = false;                   ///< --detach
  bool has_no_wait = false;                   ///< --no-wait

  [[nodiscard]] bool is_on() const noexcept { return !file.empty(); }
};

}  // namespace chainmail::launch
