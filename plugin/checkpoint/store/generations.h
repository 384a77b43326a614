// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The folder of a run and the generations in it:
//
//   gen-000000002000        complete: it has a manifest, and was renamed to this name
//   gen-000000003000.tmp    being written, or left by a crash
//   gen-000000001000.old    complete; a crash came between the two renames that replaced it
//
// At every moment, whatever call was the last one, all generations are there that were complete
// before it, except for those that prune_generations() was asked to remove.
//
// Errors of the file system are SystemError. One process at a time changes a folder, but
// write_generation_file() may be called by several.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugin/checkpoint/store/file_image.h"
#include "plugin/checkpoint/store/file_system.h"
#include "plugin/checkpoint/store/manifest.h"

namespace chainmail::internal {

[[nodiscard]] std::string generation_name(std::int64_t iteration);
/// Of the folder in which it is written.
[[nodiscard]] std::string unfinished_name(std::int64_t iteration);

/// A folder that has, or had, a complete generation.
struct Generation {
  std::string folder;  ///< with the path
  std::int64_t iteration = 0;
  std::optional<Manifest> manifest;
  std::string problem;  ///< why there is no manifest; names the file
};

/// Newest first. Reads the manifests, not the files. None when there is no such folder.
/// @throws CheckpointError  the folder cannot be read
[[nodiscard]] std::vector<Generation> list_generations(const std::string& run_folder);

/// Names of such folders in a run's.
/// @throws CheckpointError  the folder cannot be read
[[nodiscard]] std::vector<std::string> unfinished_generations(const std::string& run_folder);

/// Of folders in which one process saves by itself (lone_save.h).
inline constexpr char kWillPrefix[] = ".will-";

/// Makes the temporary folder of a generation; removes what a crash left of others, and folders of
/// kWillPrefix that nobody has written into for an hour.
void prepare_generation(FileSystem& files, const std::string& run_folder, std::int64_t iteration);

/// Seals the image, writes it into the temporary folder as file `name` and flushes it to the
/// device.
/// @return  its line of the manifest
[[nodiscard]] ManifestFile write_generation_file(FileSystem& files, const std::string& run_folder,
                                                 std::int64_t iteration, const std::string& name,
                                                 FileImage& image);

/// Writes the manifest and gives the generation its name. A generation of the same iteration is
/// replaced.
void publish_generation(FileSystem& files, const std::string& run_folder, const Manifest& manifest);

/// Removes the temporary folder, if it can.
void discard_generation(FileSystem& files, const std::string& run_folder,
                        std::int64_t iteration) noexcept;

/// Removes generations older than `newest`, except for the last `keep` - 1 whose files are all
/// there. `newest` has just been published; what is newer is not touched.
void prune_generations(FileSystem& files, const std::string& run_folder, std::int64_t newest,
                       int keep);

/// The checked contents of one file.
/// @throws CheckpointError  naming the file, and the damaged entry
[[nodiscard]] std::string read_generation_file(const Generation& generation,
                                               const ManifestFile& file);

}  // namespace chainmail::internal
