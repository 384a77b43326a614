// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A job as its file describes it, whichever form the file has: what Azure Batch AI called settings
// is said here in the words of the modern form (docs/jobs.md). Values.

#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace chainmail::launch {

/// Texts that are called patterns hold $NAME, ${NAME}, ${input.ID}, ${output.ID} and $$; see
/// launcher/job/expansion.h.
struct JobSpec {
  struct Hosts {
    std::string from;                    ///< as -H takes it; empty: what is found without -H
    std::optional<std::uint32_t> count;  ///< the first so many that answer; nothing: all
    std::chrono::milliseconds wait = std::chrono::minutes(30);  ///< for hosts that do not answer
    std::vector<std::string> resize;  ///< words; called with a number of hosts behind them
    std::optional<std::chrono::milliseconds> idle;  ///< after the last job, until resize 0
  };
  struct Variable {
    std::string name;
    std::optional<std::string> value;  ///< a pattern; nothing: the launcher's own
  };
  struct Secret {
    std::string name;
    std::string value;
  };
  struct Folder {
    std::string id;
    /// A pattern. Of a job that is to run, that of an output and of a container's input has no
    /// variables left, while hosts expand that of another input.
    std::string path;
    std::string suffix;  ///< of outputs, below PATH/jobs/NAME/UUID
  };
  struct Mount {
    std::string name;
    std::string folder;  ///< absolute
  };
  struct Prepare {
    std::string command;  ///< for /bin/sh -c; empty: none
    std::optional<std::chrono::milliseconds> timeout;
  };
  struct Container {
    std::string engine;               ///< "podman", "docker", "apptainer"
    std::string image;                ///< empty: no container
    std::vector<std::string> mounts;  ///< "/data:/data:ro"
    std::string gpus;                 ///< "all", a list of numbers, or empty
    std::string shm_size;             ///< "8g"; empty: the host's own
  };
  struct Limits {
    std::optional<std::chrono::milliseconds> time;   ///< over all attempts
    std::optional<std::chrono::milliseconds> stall;  ///< --stall-timeout
    std::optional<std::chrono::milliseconds> grace;  ///< --grace
  };
  struct Retry {
    std::uint32_t failures = 0;   ///< attempts more after a program that failed
    std::uint32_t losses = 20;    ///< and after hosts that were lost
    std::vector<int> exit_codes;  ///< that count as losses
    std::chrono::milliseconds wait = std::chrono::seconds(10);
  };
  struct Elastic {
    std::uint32_t min = 0;
    std::uint32_t max = 0;  ///< 0: the job is not elastic
  };
  struct Logs {
    /// As an output's; stdout.txt is in PATH/jobs/NAME/UUID. Empty: the job's folder.
    std::string path;
    bool tag = false;  ///< --tag-output
  };
  struct Option {
    std::string flag;                  ///< "bind-to"
    std::optional<std::string> value;  ///< nothing: a flag without a value
  };

  std::string file;    ///< absolute; relative paths are relative to its folder
  std::string sha256;  ///< of its text, hexadecimal
  bool is_batch_ai = false;
  std::string name;                  ///< letters, digits, '-', '_', '.'; 1 to 64
  std::vector<std::string> program;  ///< patterns, never a shell's
  std::optional<std::uint32_t> ranks;
  std::optional<std::uint32_t> per_node;
  Hosts hosts;
  std::string directory;  ///< a pattern, or absolute
  std::vector<Variable> environment;
  std::vector<Secret> secrets;
  std::vector<Folder> inputs;
  std::vector<Folder> outputs;
  std::vector<Mount> mounts;
  Prepare prepare;
  Container container;
  Limits limits;
  Retry retry;
  Elastic elastic;
  Logs logs;
  std::vector<Option> options;        ///< of the launcher's command line
  std::vector<std::string> warnings;  ///< "job.json:12:7: ...", for the user; no secrets
};

}  // namespace chainmail::launch
