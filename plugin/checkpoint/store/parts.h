// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// Tensors of which every rank has a part, as with the state of a sharded optimizer. Each writes a
// file of its own (manifest.h), with entries such as
//
//   optimizer/group 0/parameter 1/exp_avg[4096:8192)
//
// of at most kMaxRangeBytes: the elements from 4096 up to 8192 of a row of them. Entries without
// dimensions are values that all parts of a tensor share, such as a count of steps. A tensor is
// complete when the ranges of all files of its set tile it exactly once.
//
// Local. Errors are CheckpointError that names file and entry.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plugin/checkpoint/store/generations.h"

namespace chainmail::internal {

inline constexpr std::uint64_t kMaxRangeBytes = std::uint64_t{4} << 20;

/// What an entry has of a tensor.
struct TensorRange {
  std::string tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// "exp_avg[4096:8192)"
[[nodiscard]] std::string range_name(const TensorRange& range);
/// The reverse; nothing for a name of another form, or an empty range.
[[nodiscard]] std::optional<TensorRange> parse_range(std::string_view entry);

/// What is known of a tensor before it is read.
struct PartTensor {
  std::uint64_t elements = 0;
  EntryType type = EntryType::kBytes;
  bool is_shared = false;  ///< one element, the same for all parts
  int set = 0;             ///< replica set whose files have it
};

/// Elements that a rank wants, and where to put them; the element where it is shared.
struct PartWish {
  TensorRange range;
  std::span<std::byte> into;
  int set = 0;  ///< of the tensor
};

/// A file of parts, by what lies where.
struct PartIndex {
  std::string file;
  FileIndex index;
};

/// Throws unless the `parts` of set `set` have every tensor in `tensors` that is of this set, and
/// no other, exactly once, of one type, and agree on shared values.
void check_tiles(std::span<const ManifestTensor> tensors, int set,
                 std::span<const PartIndex> parts);

/// A file of parts of a generation, to be read entry by entry. Its head and index are checked.
class PartReader {
 public:
  /// Throws also when it is not the file that the manifest names.
  PartReader(const Generation& generation, const ManifestFile& file);
  [[nodiscard]] const FileIndex& index() const noexcept { return index_; }
  /// The checked data of an entry; until the next call. Throws, before it takes memory, when the
  /// entry is longer than a range may be.
  [[nodiscard]] std::span<const std::byte> read(std::size_t entry);

 private:
  InputFile file_;
  FileIndex index_;
  std::vector<std::byte> buffer_;
};

/// check_tiles() of all sets by the files' indices, where every file of parts is in this folder.
void check_tiles_here(const Generation& generation);

}  // namespace chainmail::internal
