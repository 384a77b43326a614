// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Whether the variables that a job file names will be there: a misspelt one would be found by the
// program only, hours later. One thread.

#pragma once

#include <set>
#include <string>
#include <vector>

#include "launcher/jobs/file/values/job_reading.h"
#include "launcher/jobs/file/values/mount_table.h"

namespace chainmail::launch {

enum class PatternUse {
  kRank,       ///< a word or folder of each rank, on its host
  kValue,      ///< of a variable of each rank, the one place for secrets
  kHost,       ///< a folder that each host looks for
  kJob,        ///< a folder that the whole job has once
  kShellLine,  ///< not a pattern: a line for sh, which expands it from the ranks' environment
};

class PatternChecks {
 public:
  void add(const JsonNode& at, const std::string& pattern, PatternUse use) {
    entries_.push_back({node_of(at), pattern, use});
  }

  /// Once all of `spec`'s names are known.
  void run(const JobReading& reading, const JobSpec& spec, MountTable& mounts) const;

 private:
  struct Entry {
    JsonNode at;
    std::string pattern;
    PatternUse use;
  };
  static JsonNode node_of(const JsonNode& at);

  std::vector<Entry> entries_;
};

/// Whether Batch AI's prefix is in front of it: no file may set it.
[[nodiscard]] bool is_batch_ai_name(const std::string& name);
[[nodiscard]] bool is_secret(const JobSpec& spec, const std::string& name);
/// What is said of a secret where others would see it.
[[nodiscard]] std::string secret_in_sight(const std::string& name);
/// RANK, WORLD_SIZE and the others that the launcher sets for every rank.
[[nodiscard]] bool is_rank_variable(const std::string& name);

}  // namespace chainmail::launch
