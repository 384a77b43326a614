// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/store/parts.h"

#include <chainmail/checkpoint_error.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/bytes.h"

namespace chainmail::internal {

namespace {

// One entry of some file.
struct Tile {
  TensorRange range;
  const PartIndex* part = nullptr;
  const FileEntry* entry = nullptr;
};

std::string quoted(const Tile& tile) { return "'" + tile.entry->name + "'"; }

std::string elements(std::uint64_t begin, std::uint64_t end) {
  return "elements " + std::to_string(begin) + " to " + std::to_string(end);
}

void check_length(const FileEntry& entry, const std::string& file) {
  if (entry.bytes <= kMaxRangeBytes) return;
  throw CheckpointError(file + ": '" + entry.name + "' has " + std::to_string(entry.bytes) +
                        " bytes, a range has at most " + std::to_string(kMaxRangeBytes));
}

using TilesOf = std::map<std::string, std::vector<Tile>>;

TilesOf collect_tiles(std::span<const PartIndex> parts) {
  TilesOf tiles;
  for (const PartIndex& part : parts) {
    for (const FileEntry& entry : part.index.entries) {
      const std::optional<TensorRange> range = parse_range(entry.name);
      const bool is_shared = entry.shape.empty();
      if (!range || entry.type == EntryType::kBytes ||
          !(is_shared ||
            (entry.shape.size() == 1 && entry.shape[0] == range->end - range->begin))) {
        throw CheckpointError(part.file + ": '" + entry.name + "' is no range of a tensor");
      }
      check_length(entry, part.file);
      tiles[range->tensor].push_back({*range, &part, &entry});
    }
  }
  return tiles;
}

void check_alike(const Tile& first, const Tile& other) {
  const bool is_shared = first.entry->shape.empty();
  if (first.entry->type != other.entry->type || is_shared != other.entry->shape.empty()) {
    throw CheckpointError(quoted(first) + " in " + first.part->file + " and " + quoted(other) +
                          " in " + other.part->file + " are of different types");
  }
  if (is_shared && first.entry->digest != other.entry->digest) {
    throw CheckpointError(quoted(first) + " in " + first.part->file + " and " + quoted(other) +
                          " in " + other.part->file +
                          " have different values, which all parts must share");
  }
}

void check_tensor(const ManifestTensor& tensor, std::vector<Tile> tiles) {
  std::ranges::stable_sort(tiles, {}, [](const Tile& tile) { return tile.range.begin; });
  std::uint64_t end = 0;
  for (std::size_t t = 0; t < tiles.size(); ++t) {
    const Tile& tile = tiles[t];
    check_alike(tiles.front(), tile);
    if (tile.range.begin < end) {
      throw CheckpointError(quoted(tile) + " in " + tile.part->file + " overlaps " +
                            quoted(tiles[t - 1]) + " in " + tiles[t - 1].part->file);
    }
    if (tile.range.begin > end) {
      throw CheckpointError("no part has the " + elements(end, tile.range.begin) + " of '" +
                            tensor.name + "', which come before " + quoted(tile) + " in " +
                            tile.part->file);
    }
    end = tile.range.end;
  }
  if (end < tensor.elements) {
    throw CheckpointError("no part has the " + elements(end, tensor.elements) + " of '" +
                          tensor.name + "'");
  }
  if (end > tensor.elements) {
    throw CheckpointError(quoted(tiles.back()) + " in " + tiles.back().part->file +
                          " ends behind the tensor's " + std::to_string(tensor.elements) +
                          " elements");
  }
}

FileIndex read_index(const InputFile& file, const ManifestFile& expected) {
  file.expect_size(expected.bytes);
  std::vector<std::byte> head(std::min<std::uint64_t>(kHeadBytes, file.size()));
  file.read(0, head);
  const std::uint64_t end = index_end(head, file.size(), file.path());
  head.resize(static_cast<std::size_t>(std::min(end, file.size())));
  file.read(0, head);
  FileIndex index = check_index(head, file.size(), file.path());
  if (file_digest(index) != expected.digest) {
    throw CheckpointError(file.path() + ": is not the file that the manifest names");
  }
  return index;
}

}  // namespace

std::string range_name(const TensorRange& range) {
  return range.tensor + '[' + std::to_string(range.begin) + ':' + std::to_string(range.end) + ')';
}

std::optional<TensorRange> parse_range(std::string_view entry) {
  const std::size_t open = entry.rfind('[');
  if (open == std::string_view::npos || !entry.ends_with(')')) return std::nullopt;
  const std::string_view numbers = entry.substr(open + 1, entry.size() - open - 2);
  const std::size_t colon = numbers.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto begin = whole_number<std::uint64_t>(numbers.substr(0, colon));
  const auto end = whole_number<std::uint64_t>(numbers.substr(colon + 1));
  if (!begin || !end || *begin >= *end) return std::nullopt;
  return TensorRange{std::string(entry.substr(0, open)), *begin, *end};
}

void check_tiles(std::span<const ManifestTensor> tensors, int set,
                 std::span<const PartIndex> parts) {
  TilesOf tiles = collect_tiles(parts);
  for (const ManifestTensor& tensor : tensors) {
    if (tensor.set != set) continue;
    const auto found = tiles.find(tensor.name);
    check_tensor(tensor, found == tiles.end() ? std::vector<Tile>{} : std::move(found->second));
    if (found != tiles.end()) tiles.erase(found);
  }
  if (!tiles.empty()) {
    const Tile& unknown = tiles.begin()->second.front();
    throw CheckpointError(unknown.part->file + ": " + quoted(unknown) +
                          " is of no tensor that the manifest names");
  }
}

PartReader::PartReader(const Generation& generation, const ManifestFile& file)
    : file_(generation.folder + '/' + file.name), index_(read_index(file_, file)) {}

std::span<const std::byte> PartReader::read(std::size_t entry) {
  const FileEntry& place = index_.entries.at(entry);
  check_length(place, file_.path());
  const std::uint64_t begin = padding_offset(index_, entry);
  buffer_.resize(static_cast<std::size_t>(place.offset + place.bytes - begin));
  file_.read(begin, buffer_);
  return check_entry(index_, entry, buffer_, file_.path());
}

void check_tiles_here(const Generation& generation) {
  const Manifest& manifest = generation.manifest.value();
  std::map<int, std::vector<PartIndex>> parts;
  for (const ManifestFile& file : manifest.files) {
    const std::optional<int> set = set_of_part_file(file.name);
    if (!set) continue;
    if (!file.is_here) return;
    parts[*set].push_back({file.name, PartReader(generation, file).index()});
  }
  for (int set = 0; set < manifest.set_count; ++set) check_tiles(manifest.tensors, set, parts[set]);
}

}  // namespace chainmail::internal
