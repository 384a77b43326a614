// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/store/file_image.h"

#include <algorithm>
#include <utility>

namespace chainmail::internal {

void FileImage::begin(std::vector<FileEntry> entries) {
  index_.entries = std::move(entries);
  lay_out(index_);
  const auto size = static_cast<std::size_t>(index_.file_bytes);
  if (size > capacity_) {
    memory_ = std::make_unique_for_overwrite<std::byte[]>(size);
    capacity_ = size;
  }
  std::uint64_t end = index_.data_offset;
  for (const FileEntry& entry : index_.entries) {
    std::fill(memory_.get() + end, memory_.get() + entry.offset, std::byte{0});
    end = entry.offset + entry.bytes;
  }
}

std::span<std::byte> FileImage::data(std::size_t entry) {
  const FileEntry& place = index_.entries.at(entry);
  return {memory_.get() + place.offset, static_cast<std::size_t>(place.bytes)};
}

void FileImage::seal() {
  for (FileEntry& entry : index_.entries) {
    entry.digest =
        entry_digest({memory_.get() + entry.offset, static_cast<std::size_t>(entry.bytes)});
  }
  const std::vector<std::byte> head = encode_index(index_);
  std::copy(head.begin(), head.end(), memory_.get());
}

std::span<const std::byte> FileImage::bytes() const {
  return {memory_.get(), static_cast<std::size_t>(index_.file_bytes)};
}

}  // namespace chainmail::internal
