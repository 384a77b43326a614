// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Folders that the launcher itself has to know before any host does, since it makes them, mounts
// them or reads what is in them: their variables are the launcher's own, and those that the file
// gives. One thread.

#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "launcher/jobs/file/values/job_reading.h"

namespace chainmail::launch {

class PlaceValues {
 public:
  PlaceValues(const JobReading& reading, const JobSpec& spec);

  /// The pattern without variables; as it is, and a mistake, where one has no value that the
  /// launcher knows. What PatternChecks refuses is not told again.
  [[nodiscard]] std::string known(const JsonNode& at, const std::string& pattern);

 private:
  struct Search {
    std::set<std::string> begun;  // one that names itself is the launcher's own
    std::string problem;
  };

  [[nodiscard]] std::optional<std::string> value(const std::string& name, Search& search);
  [[nodiscard]] std::optional<std::string> text(const std::string& pattern, Search& search);

  const JobReading& reading_;
  const JobSpec& spec_;
  std::map<std::string_view, const std::string*> given_;  // patterns of the file's variables
  std::size_t steps_ = 0;
};

}  // namespace chainmail::launch
