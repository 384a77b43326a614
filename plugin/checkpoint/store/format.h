// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

// The flat format of a checkpoint's file: what lies where, and what proves that it is whole.
//
//   head    64 bytes: magic, version, lengths, digest of the index, digest of the head itself
//   index   per entry: name, type, shape, offset, bytes, digest (XXH3, 128 bits)
//   data    the entries in that order, each on a multiple of 64 bytes, zeros between
//
// Little-endian. Every bit of a file is covered by some digest or has to be zero. The digests find
// accidents, not forgeries: they have no key.
//
// Pure functions over bytes, thread-safe. Those that read throw CheckpointError that names `path`
// and the damaged entry, and use no length before it was checked.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace chainmail::internal {

/// What an entry's elements are. The numbers are part of the format.
enum class EntryType : std::uint32_t {
  kBytes = 0,  ///< no tensor: text or whatever its owner makes of it
  kUInt8 = 1,
  kInt8 = 2,
  kInt16 = 3,
  kInt32 = 4,
  kInt64 = 5,
  kBool = 6,
  kFloat16 = 7,
  kBFloat16 = 8,
  kFloat32 = 9,
  kFloat64 = 10,
  kComplex64 = 11,
  kComplex128 = 12,
};

/// 1 for kBytes.
[[nodiscard]] std::size_t element_bytes(EntryType type) noexcept;

struct EntryDigest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  bool operator==(const EntryDigest&) const = default;
};

[[nodiscard]] EntryDigest entry_digest(std::span<const std::byte> bytes) noexcept;
[[nodiscard]] std::string to_hex(const EntryDigest& digest);

/// entry_digest() of bytes that come in pieces.
class DigestStream {
 public:
  DigestStream();
  ~DigestStream();
  DigestStream(const DigestStream&) = delete;
  DigestStream& operator=(const DigestStream&) = delete;

  void add(std::span<const std::byte> bytes) noexcept;
  /// Of what was added since the last call.
  [[nodiscard]] EntryDigest finish() noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

struct FileEntry {
  std::string name;
  EntryType type = EntryType::kBytes;
  std::vector<std::uint64_t> shape = {};  ///< a tensor's; of kBytes its length
  std::uint64_t offset = 0;               ///< from the begin of the file
  std::uint64_t bytes = 0;
  EntryDigest digest = {};
};

struct FileIndex {
  std::vector<FileEntry> entries;
  std::uint64_t data_offset = 0;  ///< bytes of head and index, padded
  std::uint64_t file_bytes = 0;
};

inline constexpr std::size_t kHeadBytes = 64;
inline constexpr std::size_t kMaxNameBytes = 4096;  ///< of an entry

/// Gives every entry its bytes (from type and shape) and offset, and the file its size.
void lay_out(FileIndex& index);

/// The first `data_offset` bytes of the file. Two files with equal ones are equal.
[[nodiscard]] std::vector<std::byte> encode_index(const FileIndex& index);

/// The whole file's digest: that of encode_index(), which holds the digests of all entries.
[[nodiscard]] EntryDigest file_digest(const FileIndex& index);

/// How many bytes of a file of `file_bytes` check_index() needs; `head` is its first kHeadBytes.
[[nodiscard]] std::uint64_t index_end(std::span<const std::byte> head, std::uint64_t file_bytes,
                                      const std::string& path);

/// Checks head and index of a file of `file_bytes`, which `begin` has, and says what lies where.
/// The data is up to check_entry().
[[nodiscard]] FileIndex check_index(std::span<const std::byte> begin, std::uint64_t file_bytes,
                                    const std::string& path);

/// Where an entry's zeros begin, behind the data of the one before.
[[nodiscard]] std::uint64_t padding_offset(const FileIndex& index, std::size_t entry);

/// Checks one entry; `bytes` are the file's from padding_offset() to the end of its data, which is
/// returned.
std::span<const std::byte> check_entry(const FileIndex& index, std::size_t entry,
                                       std::span<const std::byte> bytes, const std::string& path);

/// Checks a whole file, every bit, and says what lies where.
[[nodiscard]] FileIndex check_file(std::span<const std::byte> file, const std::string& path);

}  // namespace chainmail::internal
