// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// A save as a job of one rank does it, without torch; and what is left of several.

#pragma once

#include <chainmail/checkpoint_error.h>

#include <cstdint>
#include <map>
#include <string>

#include "plugin/checkpoint/store/file_image.h"
#include "plugin/checkpoint/store/generations.h"

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

inline void save(internal::FileSystem& files, const std::string& folder, std::int64_t iteration,
                 int value, int keep = 2) {
  internal::FileImage image = image_of(value);
  const std::string name = internal::set_file_name(0);
  internal::Manifest manifest{.iteration = iteration, .id = 1, .world_size = 1, .set_count = 1};
  internal::prepare_generation(files, folder, iteration);
  manifest.files = {internal::write_generation_file(files, folder, iteration, name, image)};
  internal::publish_generation(files, folder, manifest);
  internal::prune_generations(files, folder, iteration, keep);
}

/// The value that each whole generation holds.
inline std::map<std::int64_t, int> whole(const std::string& folder) {
  std::map<std::int64_t, int> values;
  for (const internal::Generation& generation : internal::list_generations(folder)) {
    try {
      if (generation.manifest) {
        const std::string bytes =
            internal::read_generation_file(generation, generation.manifest->files.at(0));
        values.emplace(generation.iteration, bytes.back());
      }
    } catch (const CheckpointError&) {
      // Not whole.
    }
  }
  return values;
}

}  // namespace chainmail::testing
