// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The page that makes a generation complete: written last, it names every file with its digest.
//
//   chainmail-checkpoint 1
//   iteration 2000
//   id 6b1f0c9d2a774e05
//   world 4
//   sets 1
//   file here set-0.bin 3180224 <digest of 32 hex digits>
//   file elsewhere rank-3.bin 5632 <digest>
//   digest <of all lines above>
//
// With tensors of which several ranks have parts it is version 2, has the files of these parts, and
// names the tensors, which are complete when the parts tile them (parts.h):
//
//   chainmail-checkpoint 2
//   ...
//   file here set-0.part-1.bin 1590208 <digest>
//   tensor 0 18000 optimizer/group 0/parameter 0/exp_avg
//
// that is set, elements, name. Pure functions, thread-safe.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "plugin/checkpoint/store/format.h"

namespace chainmail::internal {

struct ManifestFile {
  std::string name;
  std::uint64_t bytes = 0;
  EntryDigest digest = {};
  bool is_here = true;  ///< in this folder, not only in one of another node

  static constexpr char kObjectName[] = "file of a manifest";
  static auto fields(auto& self) {
    return std::tie(self.name, self.bytes, self.digest, self.is_here);
  }
};

/// A tensor that lies in parts.
struct ManifestTensor {
  int set = 0;
  std::uint64_t elements = 0;
  std::string name;  ///< of an entry, without its range
  bool operator==(const ManifestTensor&) const = default;

  static constexpr char kObjectName[] = "tensor of a manifest";
  static auto fields(auto& self) { return std::tie(self.set, self.elements, self.name); }
};

struct Manifest {
  std::int64_t iteration = 0;
  std::uint64_t id = 0;  ///< drawn at each save: manifests with equal ones belong together
  int world_size = 0;
  int set_count = 0;                         ///< replica sets, a file each
  std::vector<ManifestFile> files = {};      ///< of all folders
  std::vector<ManifestTensor> tensors = {};  ///< in parts, ascending by set and name

  static constexpr char kObjectName[] = "manifest";
  static auto fields(auto& self) {
    return std::tie(self.iteration, self.id, self.world_size, self.set_count, self.files,
                    self.tensors);
  }
};

inline constexpr char kManifestName[] = "manifest";

/// "set-0.bin": what all ranks of a set have in common.
[[nodiscard]] std::string set_file_name(int set);
/// "rank-3.bin": what is that rank's alone.
[[nodiscard]] std::string rank_file_name(int rank);
/// "set-0.part-3.bin": what rank 3 writes of the tensors of which its set has parts.
[[nodiscard]] std::string part_file_name(int set, int rank);
/// The set of a file of that name; nothing for another name.
[[nodiscard]] std::optional<int> set_of_part_file(std::string_view name);

[[nodiscard]] std::string print_manifest(const Manifest& manifest);
/// Takes exactly what print_manifest() makes. Throws CheckpointError that names `path`.
[[nodiscard]] Manifest parse_manifest(std::string_view text, const std::string& path);

}  // namespace chainmail::internal
