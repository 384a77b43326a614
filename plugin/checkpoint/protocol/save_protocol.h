// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// How the ranks of a job write one generation together. Runs beside training, on a communicator of
// its own.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <chainmail/communicator.h>

#include "plugin/checkpoint/protocol/folder_watch.h"
#include "plugin/checkpoint/protocol/shared_folders.h"
#include "plugin/checkpoint/store/file_image.h"
#include "plugin/checkpoint/store/manifest.h"

namespace chainmail::internal {

/// Where a job saves, and who does what.
struct SavePlace {
  std::shared_ptr<FileSystem> files;
  std::string run_folder;
  FolderMembers members;
  /// Of the folder, where this rank is the first that sees it. Null: others may save there, too.
  std::shared_ptr<FolderWatch> watch = nullptr;
  int keep = 1;
  int set = 0;         ///< the replica set of this rank
  int set_leader = 0;  ///< its lowest rank, which writes the set's file
  int set_count = 1;
};

/// Whose part of an item's tensors a rank has.
struct PartItem {
  std::string name;
  std::uint64_t slice = 0;  ///< of the item: ranks with the same one have the same part
  bool is_copy = false;     ///< another rank writes it

  static constexpr char kObjectName[] = "item in parts";
  static auto fields(auto& self) { return std::tie(self.name, self.slice, self.is_copy); }
};

/// What this rank adds to one generation.
struct SaveJob {
  std::int64_t iteration = 0;
  std::uint64_t id = 0;  ///< the same on all ranks, another one at each save
  /// What the ranks of the set have in common: the file of the one that writes it, sealed or not;
  /// the others know the digests only.
  FileImage set_image;
  FileIndex set_index;
  FileImage rank_image;  ///< what is this rank's alone
  bool has_rank_image = false;
  /// This rank's parts of tensors (store/parts.h) that it writes, and the tensors.
  FileImage part_image;
  bool has_part_image = false;
  std::vector<ManifestTensor> tensors;
  std::vector<PartItem> part_items;  ///< all, also those of which it has nothing
  /// Parts that it has and another rank writes: must be equal.
  FileIndex replica_index;
};

/// Writes a generation; returns when it is on disk everywhere. Collective.
/// @throws CheckpointError  on all ranks; older generations are untouched
void write_generation(Communicator& communicator, const SavePlace& place, SaveJob& job);

}  // namespace chainmail::internal
