// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One file of a checkpoint in memory, as it will lie on disk. The memory is kept from one save to
// the next. Not thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "plugin/checkpoint/store/format.h"

namespace chainmail::internal {

class FileImage {
 public:
  /// Begins a new file with these entries, whose names, types and shapes count.
  void begin(std::vector<FileEntry> entries);
  /// Where to put the data of an entry.
  [[nodiscard]] std::span<std::byte> data(std::size_t entry);
  /// After all data: computes the digests. The costly part.
  void seal();
  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] const FileIndex& index() const noexcept { return index_; }

 private:
  FileIndex index_;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace chainmail::internal
