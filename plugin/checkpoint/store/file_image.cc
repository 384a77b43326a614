// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/store/file_image.h"

#include <algorithm>
#include <utility>

namespace chainmail::internal {

namespace {

// Small enough to be in the cache when it is written, large enough for few calls.
constexpr std::uint64_t kPartBytes = std::uint64_t{1} << 19;

}  // namespace

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

void FileImage::seal(const Sink& sink) {
  std::uint64_t given = index_.data_offset;
  const auto give_until = [&](std::uint64_t end) {
    if (sink && end > given) {
      sink(given, {memory_.get() + given, static_cast<std::size_t>(end - given)});
    }
    given = end;
  };
  DigestStream stream;
  for (FileEntry& entry : index_.entries) {
    const std::uint64_t end = entry.offset + entry.bytes;
    for (std::uint64_t done = entry.offset; done < end;) {
      const std::uint64_t next = std::min(end, std::max(given + kPartBytes, done));
      stream.add({memory_.get() + done, static_cast<std::size_t>(next - done)});
      done = next;
      if (done >= given + kPartBytes) give_until(done);
    }
    entry.digest = stream.finish();
  }
  give_until(index_.file_bytes);
  const std::vector<std::byte> head = encode_index(index_);
  std::copy(head.begin(), head.end(), memory_.get());
  if (sink) {
    sink(0, {memory_.get(), static_cast<std::size_t>(index_.data_offset)});
  }
}

std::span<const std::byte> FileImage::bytes() const {
  return {memory_.get(), static_cast<std::size_t>(index_.file_bytes)};
}

}  // namespace chainmail::internal
