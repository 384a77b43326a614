// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How the ranks agree on the generation to resume from, and share its files.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include <chainmail/communicator.h>

#include "plugin/checkpoint/protocol/restored_parts.h"
#include "plugin/checkpoint/protocol/save_protocol.h"
#include "plugin/checkpoint/store/manifest.h"

namespace chainmail::internal {

/// The files of one generation that this rank loads, each checked by this rank.
struct RestoredGeneration {
  struct File {
    std::string name;
    std::string bytes;
    FileIndex index;
  };
  Manifest manifest;
  File set_file;
  std::vector<File> rank_files;  ///< by rank of the job that saved; empty where it had none
  RestoredParts parts;           ///< verified, and still on disk
};

/// The newest generation of which the ranks together have every file, whole. Damaged ones are left
/// out, with a line in the log of rank 0. Nothing when no folder has any. Collective.
/// @throws CheckpointError  on all ranks: all are damaged, or it has another number of sets
[[nodiscard]] std::optional<RestoredGeneration> find_newest_generation(Communicator& communicator,
                                                                       const SavePlace& place);

}  // namespace chainmail::internal
