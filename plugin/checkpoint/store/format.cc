// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/store/format.h"

#include <chainmail/checkpoint_error.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/bytes.h"

namespace chainmail::internal {

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie");

namespace {

constexpr char kMagic[8] = {'C', 'H', 'M', 'L', 'C', 'K', 'P', 'T'};
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kAlignment = 64;
constexpr std::uint32_t kMaxDimensions = 64;

// Of each EntryType, in the order of their numbers.
constexpr std::array<std::size_t, 13> kElementBytes = {1, 1, 1, 2, 4, 8, 1, 2, 2, 4, 8, 8, 16};
static_assert(kElementBytes.size() == static_cast<std::size_t>(EntryType::kComplex128) + 1);

struct Head {
  char magic[8];
  std::uint32_t version;
  std::uint32_t head_bytes;
  std::uint64_t index_bytes;
  std::uint64_t file_bytes;
  EntryDigest index_digest;
  std::uint64_t head_digest;  ///< of all before it
  std::uint64_t reserved;     ///< zero
};
static_assert(sizeof(Head) == kHeadBytes);

std::uint64_t padded(std::uint64_t bytes) { return round_up(bytes, kAlignment); }

[[noreturn]] void fail(const std::string& path, const std::string& problem) {
  throw CheckpointError(path + ": " + problem);
}

// Takes numbers off the front, none that is not there.
class Reader {
 public:
  Reader(std::span<const std::byte> bytes, const std::string& path) : rest_(bytes), path_(path) {}
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::span<const std::byte> take(std::uint64_t size) {
    if (size > rest_.size()) fail(path_, "the index ends within an entry");
    const auto taken = rest_.first(static_cast<std::size_t>(size));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  bool is_at_end() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
  const std::string& path_;
};

// False on overflow: a shape that no file can hold.
bool multiply(std::uint64_t& product, std::uint64_t factor) {
  return !__builtin_mul_overflow(product, factor, &product);
}

std::uint64_t head_digest(const Head& head) {
  return XXH3_64bits(&head, offsetof(Head, head_digest));
}

std::uint64_t index_bytes(const FileIndex& index) {
  std::uint64_t bytes = 0;
  for (const FileEntry& entry : index.entries) {
    bytes += 3 * sizeof(std::uint32_t) + entry.name.size() +
             (entry.shape.size() + 2) * sizeof(std::uint64_t) + sizeof(EntryDigest);
  }
  return bytes;
}

Head parse_head(std::span<const std::byte> begin, std::uint64_t file_bytes,
                const std::string& path) {
  const std::uint64_t present = std::min<std::uint64_t>(begin.size(), file_bytes);
  if (present < kHeadBytes) {
    fail(path, "header: the file has " + std::to_string(present) + " bytes only");
  }
  Head head;
  std::memcpy(&head, begin.data(), sizeof head);
  if (std::memcmp(head.magic, kMagic, sizeof kMagic) != 0) {
    fail(path, "header: no checkpoint of Chainmail, or its first bytes are damaged");
  }
  if (head.head_digest != head_digest(head) || head.reserved != 0) {
    fail(path, "header: differs from its digest");
  }
  if (head.version != kVersion || head.head_bytes != kHeadBytes) {
    fail(path, "header: format version " + std::to_string(head.version) + ", this build reads " +
                   std::to_string(kVersion));
  }
  if (head.file_bytes != file_bytes) {
    fail(path, "header: the file should have " + std::to_string(head.file_bytes) +
                   " bytes and has " + std::to_string(file_bytes));
  }
  if (head.index_bytes > file_bytes - kHeadBytes) {
    fail(path, "header: the index is longer than the file");
  }
  return head;
}

FileEntry parse_entry(Reader& reader, const std::string& path) {
  FileEntry entry;
  const auto name_bytes = reader.number<std::uint32_t>();
  if (name_bytes > kMaxNameBytes) {
    fail(path, "index: a name of " + std::to_string(name_bytes) + " bytes");
  }
  const auto name = reader.take(name_bytes);
  entry.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  const auto type = reader.number<std::uint32_t>();
  const auto dimensions = reader.number<std::uint32_t>();
  if (type >= kElementBytes.size() || dimensions > kMaxDimensions) {
    fail(path, "index: '" + entry.name + "' has an unknown type or too many dimensions");
  }
  entry.type = static_cast<EntryType>(type);
  std::uint64_t expected = element_bytes(entry.type);
  for (std::uint32_t d = 0; d < dimensions; ++d) {
    entry.shape.push_back(reader.number<std::uint64_t>());
    if (!multiply(expected, entry.shape.back())) {
      fail(path, "index: the shape of '" + entry.name + "' is too large");
    }
  }
  entry.offset = reader.number<std::uint64_t>();
  entry.bytes = reader.number<std::uint64_t>();
  entry.digest = reader.number<EntryDigest>();
  if (entry.bytes != expected) {
    fail(path, "index: the shape of '" + entry.name + "' does not fit its length");
  }
  return entry;
}

// Of `bytes`, the file's from `begin` on, which have to be zero.
void check_zeros(std::span<const std::byte> bytes, std::uint64_t begin, const std::string& path) {
  if (std::any_of(bytes.begin(), bytes.end(), [](std::byte b) { return b != std::byte{0}; })) {
    fail(path, "padding: the bytes from " + std::to_string(begin) + " to " +
                   std::to_string(begin + bytes.size()) + " are not zero");
  }
}

// Where the data of `entry` ends; checks that it lies behind that of the one before, which ended at
// `end`, and within the file.
std::uint64_t check_place(const FileEntry& entry, std::uint64_t end, std::uint64_t file_bytes,
                          const std::string& path) {
  if (end > file_bytes || padded(end) != entry.offset || entry.offset > file_bytes ||
      entry.bytes > file_bytes - entry.offset) {
    fail(path, "index: '" + entry.name + "' lies outside of its place");
  }
  return entry.offset + entry.bytes;
}

}  // namespace

std::size_t element_bytes(EntryType type) noexcept {
  return kElementBytes.at(static_cast<std::size_t>(type));
}

EntryDigest entry_digest(std::span<const std::byte> bytes) noexcept {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.low64, hash.high64};
}

struct DigestStream::State {
  XXH3_state_t hash;
};

DigestStream::DigestStream() : state_(std::make_unique<State>()) {
  XXH3_128bits_reset(&state_->hash);
}

DigestStream::~DigestStream() = default;

void DigestStream::add(std::span<const std::byte> bytes) noexcept {
  XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size());
}

EntryDigest DigestStream::finish() noexcept {
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->hash);
  XXH3_128bits_reset(&state_->hash);
  return {hash.low64, hash.high64};
}

std::string to_hex(const EntryDigest& digest) { return to_hex(digest.high) + to_hex(digest.low); }

void lay_out(FileIndex& index) {
  std::uint64_t end = kHeadBytes + index_bytes(index);
  index.data_offset = padded(end);
  end = index.data_offset;
  for (FileEntry& entry : index.entries) {
    entry.bytes = element_bytes(entry.type);
    for (const std::uint64_t extent : entry.shape) {
      if (!multiply(entry.bytes, extent)) {
        throw CheckpointError("'" + entry.name + "' is too large for a file");
      }
    }
    entry.offset = padded(end);
    end = entry.offset + entry.bytes;
  }
  index.file_bytes = end;
}

std::vector<std::byte> encode_index(const FileIndex& index) {
  std::vector<std::byte> bytes(kHeadBytes);
  bytes.reserve(static_cast<std::size_t>(index.data_offset));
  const auto raw = [&](const void* data, std::size_t size) {
    const auto* const begin = static_cast<const std::byte*>(data);
    bytes.insert(bytes.end(), begin, begin + size);
  };
  const auto number = [&](const auto& value) { raw(&value, sizeof value); };  // as memory has it
  for (const FileEntry& entry : index.entries) {
    number(static_cast<std::uint32_t>(entry.name.size()));
    raw(entry.name.data(), entry.name.size());
    number(static_cast<std::uint32_t>(entry.type));
    number(static_cast<std::uint32_t>(entry.shape.size()));
    raw(entry.shape.data(), entry.shape.size() * sizeof(std::uint64_t));
    number(entry.offset);
    number(entry.bytes);
    number(entry.digest);
  }
  Head head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.version = kVersion;
  head.head_bytes = kHeadBytes;
  head.index_bytes = bytes.size() - kHeadBytes;
  head.file_bytes = index.file_bytes;
  head.index_digest = entry_digest(std::span(bytes).subspan(kHeadBytes));
  head.head_digest = head_digest(head);
  std::memcpy(bytes.data(), &head, sizeof head);
  bytes.resize(static_cast<std::size_t>(index.data_offset));
  return bytes;
}

EntryDigest file_digest(const FileIndex& index) { return entry_digest(encode_index(index)); }

std::uint64_t index_end(std::span<const std::byte> head, std::uint64_t file_bytes,
                        const std::string& path) {
  return padded(kHeadBytes + parse_head(head, file_bytes, path).index_bytes);
}

FileIndex check_index(std::span<const std::byte> begin, std::uint64_t file_bytes,
                      const std::string& path) {
  const Head head = parse_head(begin, file_bytes, path);
  FileIndex index;
  index.file_bytes = file_bytes;
  // First without padding, which may overflow.
  const bool has_all = head.index_bytes <= begin.size() - kHeadBytes &&
                       padded(kHeadBytes + head.index_bytes) <= begin.size();
  if (!has_all) fail(path, "header: the file ends within its index");
  index.data_offset = padded(kHeadBytes + head.index_bytes);
  const auto encoded = begin.subspan(kHeadBytes, static_cast<std::size_t>(head.index_bytes));
  if (entry_digest(encoded) != head.index_digest) fail(path, "index: differs from its digest");
  std::unordered_set<std::string> names;
  std::uint64_t end = index.data_offset;
  for (Reader reader(encoded, path); !reader.is_at_end();) {
    FileEntry entry = parse_entry(reader, path);
    end = check_place(entry, end, file_bytes, path);
    if (!names.insert(entry.name).second) fail(path, "index: '" + entry.name + "' is there twice");
    index.entries.push_back(std::move(entry));
  }
  if (end != file_bytes) fail(path, "index: the file goes on after its last entry");
  const std::uint64_t encoded_end = kHeadBytes + head.index_bytes;
  check_zeros(begin.subspan(static_cast<std::size_t>(encoded_end),
                            static_cast<std::size_t>(index.data_offset - encoded_end)),
              encoded_end, path);
  return index;
}

std::uint64_t padding_offset(const FileIndex& index, std::size_t entry) {
  if (entry == 0) return index.data_offset;
  const FileEntry& before = index.entries.at(entry - 1);
  return before.offset + before.bytes;
}

std::span<const std::byte> check_entry(const FileIndex& index, std::size_t entry,
                                       std::span<const std::byte> bytes, const std::string& path) {
  const FileEntry& place = index.entries.at(entry);
  const std::uint64_t begin = padding_offset(index, entry);
  const auto zeros = static_cast<std::size_t>(place.offset - begin);
  check_zeros(bytes.first(zeros), begin, path);
  const auto data = bytes.subspan(zeros, static_cast<std::size_t>(place.bytes));
  if (entry_digest(data) != place.digest) {
    fail(path, "'" + place.name + "' differs from its digest (" + std::to_string(place.bytes) +
                   " bytes from " + std::to_string(place.offset) + ")");
  }
  return data;
}

FileIndex check_file(std::span<const std::byte> file, const std::string& path) {
  FileIndex index = check_index(file, file.size(), path);
  for (std::size_t e = 0; e < index.entries.size(); ++e) {
    const auto begin = static_cast<std::size_t>(padding_offset(index, e));
    const auto end = static_cast<std::size_t>(index.entries[e].offset + index.entries[e].bytes);
    check_entry(index, e, file.subspan(begin, end - begin), path);
  }
  return index;
}

}  // namespace chainmail::internal
