// SPDX-License-Identifier: BSD-3-Clause
// SPDX-FileCopyrightText: 2026 the Chainmail authors

#include "plugin/checkpoint/store/format.h"

#include <chainmail/checkpoint_error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "plugin/checkpoint/store/file_image.h"
#include "plugin/checkpoint/store/manifest.h"

namespace chainmail::internal {
namespace {

using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

std::vector<FileEntry> small_entries() {
  return {{.name = "model/weight", .type = EntryType::kFloat32, .shape = {3, 5}},
          {.name = "rng/state", .type = EntryType::kBytes, .shape = {13}},
          {.name = "model/empty", .type = EntryType::kFloat64, .shape = {0, 7}},
          {.name = "position/epoch", .type = EntryType::kInt64, .shape = {}}};
}

Bytes small_file() {
  FileImage image;
  image.begin(small_entries());
  unsigned value = 1;
  for (std::size_t e = 0; e < image.index().entries.size(); ++e) {
    for (std::byte& byte : image.data(e)) byte = static_cast<std::byte>(value++ * 37U);
  }
  image.seal();
  return {image.bytes().begin(), image.bytes().end()};
}

std::string error_of(const Bytes& file) {
  try {
    (void)check_file(file, "some/file.bin");
    return "";
  } catch (const CheckpointError& error) {
    return error.what();
  }
}

// A file whose digests fit, whatever the index says.
Bytes forged(const FileIndex& index) {
  Bytes file = encode_index(index);
  file.resize(static_cast<std::size_t>(std::min<std::uint64_t>(index.file_bytes, 1U << 20)));
  return file;
}

FileIndex one_entry() {
  FileIndex index;
  index.entries = {{.name = "x", .type = EntryType::kUInt8, .shape = {16}}};
  lay_out(index);
  index.entries[0].digest = entry_digest(Bytes(16));
  return index;
}

TEST(Format, HoldsEveryEntryWhereItSays) {
  const Bytes file = small_file();
  const FileIndex index = check_file(file, "f");
  ASSERT_EQ(index.entries.size(), 4U);
  unsigned value = 1;
  for (std::size_t e = 0; e < index.entries.size(); ++e) {
    const FileEntry& entry = index.entries[e];
    EXPECT_EQ(entry.name, small_entries()[e].name);
    EXPECT_EQ(entry.type, small_entries()[e].type);
    EXPECT_EQ(entry.shape, small_entries()[e].shape);
    EXPECT_EQ(entry.offset % 64, 0U);
    for (std::uint64_t i = 0; i < entry.bytes; ++i) {
      EXPECT_EQ(file[entry.offset + i], static_cast<std::byte>(value++ * 37U));
    }
  }
  EXPECT_EQ(index.entries[0].bytes, 60U);
  EXPECT_EQ(index.entries[3].bytes, 8U);
}

TEST(Format, AFileWithoutEntriesIsWhole) {
  FileImage image;
  image.begin({});
  image.seal();
  EXPECT_EQ(error_of({image.bytes().begin(), image.bytes().end()}), "");
}

TEST(Format, MemoryOfAnEarlierFileDoesNotShowThrough) {
  FileImage image;
  image.begin({{.name = "large", .type = EntryType::kUInt8, .shape = {1000}}});
  std::memset(image.data(0).data(), 0xff, 1000);
  image.seal();
  image.begin(small_entries());
  for (std::size_t e = 0; e < 4; ++e) std::memset(image.data(e).data(), 1, image.data(e).size());
  image.seal();
  EXPECT_EQ(error_of({image.bytes().begin(), image.bytes().end()}), "");
}

TEST(Format, EveryBitIsGuarded) {
  Bytes file = small_file();
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    file[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_THAT(error_of(file), HasSubstr("some/file.bin: ")) << "bit " << bit;
    file[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

TEST(Format, DamageInDataNamesTheTensor) {
  const Bytes file = small_file();
  for (const FileEntry& entry : check_file(file, "f").entries) {
    for (std::uint64_t i = 0; i < entry.bytes; ++i) {
      Bytes damaged = file;
      damaged[entry.offset + i] ^= std::byte{64};
      EXPECT_THAT(error_of(damaged), HasSubstr("'" + entry.name + "' differs from its digest"));
    }
  }
}

TEST(Format, EveryLengthButTheRightOneIsRefused) {
  const Bytes file = small_file();
  for (std::size_t length = 0; length < file.size(); ++length) {
    EXPECT_NE(error_of({file.begin(), file.begin() + static_cast<std::ptrdiff_t>(length)}), "");
  }
  Bytes longer = file;
  longer.push_back(std::byte{0});
  EXPECT_NE(error_of(longer), "");
}

TEST(Format, LengthsThatLieAreFoundBeforeUse) {
  EXPECT_EQ(error_of(forged(one_entry())), "");
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  FileIndex index = one_entry();
  index.entries[0].bytes = kHuge;
  EXPECT_THAT(error_of(forged(index)), HasSubstr("does not fit its length"));
  index = one_entry();
  index.entries[0].shape = {kHuge, kHuge};
  EXPECT_THAT(error_of(forged(index)), HasSubstr("too large"));
  index = one_entry();
  index.entries[0].shape = {kHuge};
  index.entries[0].bytes = kHuge;
  EXPECT_THAT(error_of(forged(index)), HasSubstr("outside of its place"));
  index = one_entry();
  index.entries[0].offset = kHuge - 63;
  EXPECT_THAT(error_of(forged(index)), HasSubstr("outside of its place"));
  index = one_entry();
  index.entries[0].offset = 0;
  EXPECT_THAT(error_of(forged(index)), HasSubstr("outside of its place"));
  index = one_entry();
  index.entries.push_back(index.entries[0]);
  EXPECT_THAT(error_of(forged(index)), HasSubstr("some/file.bin: "));
  index = one_entry();
  index.entries[0].type = static_cast<EntryType>(99);
  EXPECT_THAT(error_of(forged(index)), HasSubstr("unknown type"));
  index = one_entry();
  index.file_bytes += 64;
  EXPECT_THAT(error_of(forged(index)), HasSubstr("goes on after"));
}

// Padded, the end of such an index would be 0.
TEST(Format, AnIndexThatEndsBehindAllNumbersIsRefused) {
  Bytes head = forged(one_entry());
  head.resize(kHeadBytes);
  constexpr std::uint64_t kHuge = std::numeric_limits<std::uint64_t>::max();
  const std::uint64_t index_bytes = kHuge - kHeadBytes;
  std::memcpy(head.data() + 16, &index_bytes, sizeof index_bytes);
  std::memcpy(head.data() + 24, &kHuge, sizeof kHuge);
  const std::uint64_t digest = hash64(std::span<const std::byte>(head).first(48));
  std::memcpy(head.data() + 48, &digest, sizeof digest);
  try {
    (void)check_index(head, kHuge, "some/file.bin");
    ADD_FAILURE() << "no error";
  } catch (const CheckpointError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the file ends within its index"));
  }
}

TEST(Format, AnIndexThatIsCutIsNamed) {
  // The head is right and promises an index, which ends within its entry.
  FileIndex index = one_entry();
  Bytes file = forged(index);
  const std::uint32_t long_name = 4000;
  std::memcpy(file.data() + kHeadBytes, &long_name, sizeof long_name);
  EXPECT_THAT(error_of(file), HasSubstr("index: differs from its digest"));
}

TEST(Format, TwoEntriesOfOneNameAreRefused) {
  FileImage image;
  image.begin({{.name = "x", .shape = {1}}, {.name = "x", .shape = {1}}});
  image.seal();
  EXPECT_THAT(error_of({image.bytes().begin(), image.bytes().end()}), HasSubstr("there twice"));
}

Manifest some_manifest() {
  Manifest manifest{.iteration = 2000, .id = 77, .world_size = 4, .set_count = 2};
  manifest.files = {{"set-0.bin", 100, {1, 2}, true},
                    {"set-1.bin", 200, {3, 4}, true},
                    {"rank-3.bin", 64, {~std::uint64_t{0}, 0}, false}};
  return manifest;
}

TEST(ManifestText, ComesBack) {
  const std::string text = print_manifest(some_manifest());
  const Manifest parsed = parse_manifest(text, "m");
  EXPECT_EQ(print_manifest(parsed), text);
  EXPECT_EQ(parsed.files.at(2).digest, some_manifest().files.at(2).digest);
  EXPECT_FALSE(parsed.files.at(2).is_here);
}

TEST(ManifestText, EveryBitAndEveryLengthIsGuarded) {
  const std::string text = print_manifest(some_manifest());
  for (std::size_t bit = 0; bit < text.size() * 8; ++bit) {
    std::string damaged = text;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_THROW((void)parse_manifest(damaged, "m"), CheckpointError) << "bit " << bit;
  }
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_THROW((void)parse_manifest(text.substr(0, length), "m"), CheckpointError);
  }
}

TEST(ManifestText, RefusesFilesThatItCannotName) {
  Manifest manifest = some_manifest();
  manifest.files[0].name = "../secret";
  EXPECT_THROW((void)parse_manifest(print_manifest(manifest), "m"), CheckpointError);
  manifest = some_manifest();
  manifest.files.pop_back();
  manifest.files.pop_back();  // set-1.bin
  EXPECT_THROW((void)parse_manifest(print_manifest(manifest), "m"), CheckpointError);
  manifest = some_manifest();
  manifest.world_size = 3;
  EXPECT_THROW((void)parse_manifest(print_manifest(manifest), "m"), CheckpointError);
}

}  // namespace
}  // namespace chainmail::internal
