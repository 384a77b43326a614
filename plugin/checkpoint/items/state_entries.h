// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// States as entries of a file. Local, thread-safe.

#pragma once

#include <span>
#include <string>
#include <vector>

#include <chainmail/checkpoint.h>

#include "plugin/checkpoint/store/file_image.h"

namespace chainmail::internal {

/// Of an entry's elements; `type` is not kBytes.
[[nodiscard]] c10::ScalarType scalar_type_of(EntryType type);

/// Throws InvalidArgument for a name of an entry, "item/key", that is too long for the format.
void check_name(const std::string& name);

/// Entries of several states, with where their bytes come from.
class StateEntries {
 public:
  /// Adds all values of `state` as "item/key".
  /// @throws InvalidArgument  a tensor that has no dense elements, or of a type without a place in
  ///                          the format; a name that is too long for it
  void add(const std::string& item, const CheckpointState& state);
  void append(StateEntries other);
  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }

  /// Copies all bytes into a file image, which is not sealed yet.
  void fill(FileImage& image) const;
  /// What sealing such an image would say, without the copy.
  [[nodiscard]] FileIndex index() const;
  /// A line for each: "'item/key' is Float [20, 6]".
  [[nodiscard]] std::string shapes() const;

 private:
  std::vector<FileEntry> entries_;
  std::vector<CheckpointState::Value> values_;
};

/// The values of one item; none when the file has nothing of it. `file` fits `index`.
[[nodiscard]] CheckpointState read_state(const std::string& item, const FileIndex& index,
                                         std::span<const std::byte> file);

}  // namespace chainmail::internal
