// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// What every host of a job gets before its first rank: a container that all of the job runs in
// there, and a command that prepares it. Values.

#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace chainmail::launch {

/// One on each host, on this machine too; the agent is started in it, so that ranks, their
/// preparation and all else of the job are inside. Nothing of the launcher's need be in the image,
/// but /bin/sh and the commands of remote/bootstrap.cc.
struct Container {
  std::string engine;  ///< "podman", "docker" or "apptainer", found in the PATH of each host
  std::string image;   ///< as the engine takes it; empty: no container
  /// "/data:/data:ro": all folders of the hosts that are seen inside; the working directory of the
  /// ranks has to be one of them, or be in the image.
  std::vector<std::string> mounts;
  std::string gpus;      ///< "all", numbers with commas between them, or empty
  std::string shm_size;  ///< "8g"; empty: as large as the host's own /dev/shm
  /// Containers are called PREFIX-NODE, those of later worlds and tries PREFIX-NODE.WORLD.TRY;
  /// empty: "chainmail-" and the id of the world.
  std::string name_prefix;
  /// "chainmail.job=UUID", by which those that are left are found; of this job alone. Empty: with
  /// the id of the world.
  std::string label;

  [[nodiscard]] bool is_on() const noexcept { return !image.empty(); }
};

/// Commands that run before the ranks of a job of fixed size, once for each attempt: one process on
/// a host, not bound, with the variables of the first program, as children of the agent that starts
/// the ranks afterwards. Where the first program `expands`, so do these words.
struct Preparation {
  std::vector<std::string> first_words;  ///< on the first host alone, before; empty: none
  std::vector<std::string> words;        ///< then on every host; empty: none
  /// Of each of the two; nothing: an hour, 0: none.
  std::optional<std::chrono::milliseconds> timeout;
  /// Folder of prepare.HOST.txt with all that they print; empty: only the last lines of one that
  /// fails are shown.
  std::string output_folder;
  /// Where they run, with the ranks' directory as PWD in what is expanded; empty: there.
  std::string directory;

  [[nodiscard]] bool is_on() const noexcept { return !words.empty() || !first_words.empty(); }
};

}  // namespace chainmail::launch
