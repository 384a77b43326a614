// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The launcher's command line. Pure functions over argv, thread-safe.
//
// Not gflags: it keeps only the last of repeated string flags (`-x A -x B`) and reorders argv,
// while everything from the program's name on belongs to the program and is never looked at.

#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "launcher/mpi/mpi_wire.h"

namespace chainmail::launch {

/// The user's mistake on the command line: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// One `-x NAME` (value taken from the launcher's environment) or `-x NAME=value`.
struct ExportedVariable {
  std::string name;
  std::optional<std::string> value;
};

struct Options {
  std::string hosts;           ///< -H
  std::string hostfile;        ///< --hostfile
  std::string host_discovery;  ///< --host-discovery, a command
  std::string include;         ///< --include, hosts and slots to use
  std::string exclude;         ///< --exclude, hosts and slots to leave out
  std::optional<int> ranks;
  std::optional<int> per_node;
  std::vector<ExportedVariable> variables;
  std::string remote_shell = "ssh";
  std::string output_dir;
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<std::chrono::milliseconds> grace;
  MpiMode mpi = MpiMode::kAuto;
  bool oversubscribe = false;
  bool hostfile_strict = false;  ///< a host named twice in a hostfile is an error
  bool tag_output = false;
  bool dry_run = false;
  bool json = false;
  bool torchrun_env = false;
  bool help = false;
  bool version = false;
  std::vector<std::string> program;  ///< program and its arguments
};

/// `arguments` without the launcher's own name. Throws UsageError with one sentence.
[[nodiscard]] Options parse_options(std::span<const std::string> arguments);

/// Splits the value of `flag` into words; quotes group, a backslash escapes. Throws UsageError.
[[nodiscard]] std::vector<std::string> split_command(const std::string& text,
                                                     const std::string& flag = "--rsh");

[[nodiscard]] std::string usage_text();

}  // namespace chainmail::launch
