// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// One file of a checkpoint in memory, as it will lie on disk. The memory is kept from one save to
// the next. Not thread-safe.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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
  /// Takes a part of the file as it will stay; `offset` is its place in the file.
  using Sink = std::function<void(std::uint64_t offset, std::span<const std::byte> bytes)>;

  /// After all data: computes the digests. Gives every part of the file to `sink` once, while it
  /// is still in the cache; the head comes last. What `sink` throws passes through.
  void seal(const Sink& sink = {});
  [[nodiscard]] std::span<const std::byte> bytes() const;
  [[nodiscard]] const FileIndex& index() const noexcept { return index_; }

 private:
  FileIndex index_;
  std::unique_ptr<std::byte[]> memory_;
  std::size_t capacity_ = 0;
};

}  // namespace chainmail::internal
