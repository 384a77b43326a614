// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Folders that a job file calls by names, as $AZ_BATCHAI_JOB_MOUNT_ROOT/NAME: nothing is mounted,
// but each name is a folder that is there already. Which one says, in this order: --mount, the file
// itself, $CHAINMAIL_MOUNTS ("NAME=DIR:NAME=DIR") and ~/.config/chainmail/mounts.json. One thread.

#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/jobs/file/values/job_reading.h"

namespace chainmail::launch {

class MountTable {
 public:
  explicit MountTable(const JobReading& reading);

  /// A name that the file has, with its folder if it says so.
  void declare(const JsonNode& at, const std::string& name, const JsonNode& folder);

  /// A path below one of the two roots, as a pattern that begins with the folder; another pattern
  /// stays as it is.
  [[nodiscard]] std::string mapped(const JsonNode& at, const std::string& pattern);

  /// Somewhere a variable, with what stands behind it: if it is one of the roots, the name that
  /// follows must be known.
  void mention(const JsonNode& at, const std::string& variable, std::string_view behind);

  /// All that were declared, given by --mount or mentioned. Those without a folder have an empty
  /// one, and are a mistake where the job is to run.
  [[nodiscard]] std::vector<JobSpec::Mount> take();

 private:
  struct Known {
    std::string folder;
    std::string source;  // "--mount NAME", for messages
  };
  struct Used {
    std::string name;
    JsonNode at;
  };

  void load();
  void read_variable();
  void read_file();
  void know(const std::string& name, Known known);
  void use(const JsonNode& at, const std::string& name);
  [[nodiscard]] std::string name_before(std::string_view path) const;
  [[nodiscard]] std::string folder_of(const std::string& name) const;
  void check(const Used& used) const;

  const JobReading& reading_;
  bool has_loaded_ = false;
  std::map<std::string, Known> known_;
  std::vector<Used> used_;
};

/// Whether it is one of the two variables.
[[nodiscard]] bool is_mount_root(std::string_view variable);

}  // namespace chainmail::launch
