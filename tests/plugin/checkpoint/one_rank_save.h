// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A save as a job of one rank does it, without torch; and what is left of several.

#pragma once

#include <chainmail/checkpoint_error.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "plugin/checkpoint/store/file_image.h"
#include "plugin/checkpoint/store/generations.h"
#include "plugin/checkpoint/store/parts.h"

namespace chainmail::testing {

/// Two tensors whose bytes all are `value`.
inline internal::FileImage image_of(int value) {
  internal::FileImage image;
  image.begin({{.name = "model/a", .type = internal::EntryType::kFloat32, .shape = {50}},
               {.name = "model/b", .type = internal::EntryType::kUInt8, .shape = {300}}});
  for (std::size_t e = 0; e < 2; ++e) {
    for (std::byte& byte : image.data(e)) byte = static_cast<std::byte>(value);
  }
  image.seal();
  return image;
}

inline constexpr std::uint64_t kPartElements = 100;

/// A part of "optimizer/sum", whose bytes all are `value`: the elements from 100 `part` on, and a
/// count that all parts share.
inline internal::FileImage part_of(int part, int value) {
  const auto begin = static_cast<std::uint64_t>(part) * kPartElements;
  const std::uint64_t end = begin + kPartElements;
  internal::FileImage image;
  image.begin({{.name = internal::range_name({"optimizer/step", begin, end}),
                .type = internal::EntryType::kInt64},
               {.name = internal::range_name({"optimizer/sum", begin, end}),
                .type = internal::EntryType::kFloat32,
                .shape = {kPartElements}}});
  for (std::size_t e = 0; e < 2; ++e) {
    for (std::byte& byte : image.data(e)) byte = static_cast<std::byte>(value);
  }
  return image;
}

/// With as many parts as told, as if so many ranks had written one after the other.
inline void save(internal::FileSystem& files, const std::string& folder, std::int64_t iteration,
                 int value, int keep = 2, int parts = 0) {
  internal::FileImage image = image_of(value);
  const std::string name = internal::set_file_name(0);
  internal::Manifest manifest{
      .iteration = iteration, .id = 1, .world_size = std::max(parts, 1), .set_count = 1};
  internal::prepare_generation(files, folder, iteration);
  manifest.files = {internal::write_generation_file(files, folder, iteration, name, image)};
  for (int part = 0; part < parts; ++part) {
    internal::FileImage of_part = part_of(part, value);
    manifest.files.push_back(internal::write_generation_file(
        files, folder, iteration, internal::part_file_name(0, part), of_part));
  }
  if (parts > 0) {
    const std::uint64_t elements = static_cast<std::uint64_t>(parts) * kPartElements;
    manifest.tensors = {{0, elements, "optimizer/step"}, {0, elements, "optimizer/sum"}};
  }
  internal::publish_generation(files, folder, manifest);
  internal::prune_generations(files, folder, iteration, keep);
}

/// The value that a generation holds; throws where it is not whole.
inline int value_of(const internal::Generation& generation) {
  std::set<char> values;
  for (const internal::ManifestFile& file : generation.manifest.value().files) {
    values.insert(internal::read_generation_file(generation, file).back());
  }
  internal::check_tiles_here(generation);
  if (values.size() != 1) throw CheckpointError(generation.folder + " is of several saves");
  return *values.begin();
}

/// The value that each whole generation holds.
inline std::map<std::int64_t, int> whole(const std::string& folder) {
  std::map<std::int64_t, int> values;
  for (const internal::Generation& generation : internal::list_generations(folder)) {
    try {
      if (generation.manifest) values.emplace(generation.iteration, value_of(generation));
    } catch (const CheckpointError&) {
      // Not whole.
    }
  }
  return values;
}

}  // namespace chainmail::testing
